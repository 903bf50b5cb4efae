"""Run the sidecar: `python -m amux.launcher.sidecar OPTIONS`."""

from __future__ import annotations

import sys

from amux.launcher.sidecar.options import Options

USAGE = 2
MISSING = 3


def main() -> int:
    """Run one conversation and return the exit status."""
    if len(sys.argv) != 2:  # noqa: PLR2004  # the program and the one argument
        sys.stderr.write("usage: python -m amux.launcher.sidecar OPTIONS\n")
        return USAGE
    options = Options.read(sys.argv[1])
    try:
        from amux.launcher.sidecar.session import run  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}: install amux[claude-sdk] for {sys.executable}\n")
        return MISSING
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
