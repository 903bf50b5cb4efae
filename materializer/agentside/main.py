"""The outermost frame: `memory …` and `mcp`, and what a shell gets back."""

from __future__ import annotations

import os
import sys

from amux.materializer.agentside import VERSION
from amux.materializer.agentside.errors import DONE, INTERRUPTED, OTHER, Failure
from amux.materializer.agentside.streams import (
    STDOUT,
    complain,
    hold_descriptors,
    to_json,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: amux memory COMMAND …   read and write this session's memory (amux memory --help)
       amux mcp                serve the same as MCP tools on standard input and output
       amux --version
"""


def main(argv: Sequence[str]) -> int:
    """Run one command; `argv` is without the program's name. Returns the exit status."""
    hold_descriptors()
    try:
        return _dispatch(argv)
    except Failure as failure:
        return _report(failure)
    except BrokenPipeError:
        return OTHER
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        reason = error.strerror or str(error)
        return _report(Failure("internal", f"Input or output failed: {reason}."))
    except Exception as error:  # noqa: BLE001  # the outermost frame: no traceback for an agent
        return _report(Failure("internal", f"amux failed: {type(error).__name__}: {error}"))


def _report(failure: Failure) -> int:
    complain(to_json(failure.body()) + b"\n")
    return failure.status


def _dispatch(argv: Sequence[str]) -> int:
    command = argv[0] if argv else ""
    if command == "memory":
        from amux.materializer.agentside.commands import run  # noqa: PLC0415  # only what is used

        return run(argv[1:], os.environ)
    if command == "mcp":
        from amux.materializer.agentside.server import serve  # noqa: PLC0415  # only what is used

        return serve(argv[1:], os.environ)
    if command in ("--version", "version"):
        write_all(STDOUT, f"amux {VERSION}\n".encode())
        return DONE
    if command in ("--help", "-h", "help"):
        write_all(STDOUT, HELP.encode())
        return DONE
    raise Failure("invalid_request", "Say what to do: amux memory COMMAND …, or amux mcp.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
