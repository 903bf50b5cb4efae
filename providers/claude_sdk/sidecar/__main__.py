"""Run the sidecar: `python -m amux.providers.claude_sdk.sidecar OPTIONS`."""

from __future__ import annotations

import sys
from pathlib import Path

from amux.providers.claude_sdk.sidecar.options import Options

USAGE = 2
MISSING = 3


def main() -> int:
    """Run one conversation and return the exit status."""
    if len(sys.argv) != 2:  # noqa: PLR2004  # the program and the one argument
        sys.stderr.write("usage: python -m amux.providers.claude_sdk.sidecar OPTIONS\n")
        return USAGE
    argument = sys.argv[1]
    text = argument if argument.startswith("{") else Path(argument).read_text("utf-8")
    options = Options.from_json(text)
    try:
        from amux.providers.claude_sdk.sidecar.session import run  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}: install amux-launcher[claude-sdk] for {sys.executable}\n")
        return MISSING
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
