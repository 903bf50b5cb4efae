"""The `amux` command: agent-side verbs go straight through, everything else is click.

An agent runs `amux memory …` many times in one conversation, so those two verbs are reached
before anything heavy is imported.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # what the other adds to it takes longer to load than all of this

AGENT_SIDE: Final = frozenset({"memory", "mcp"})


INTERRUPTED: Final = 130
"""The exit status of Ctrl-C, which is no fault: nothing is printed."""


def main() -> int:
    """Run the command named in `sys.argv` and return its exit status."""
    try:
        return _run()
    except KeyboardInterrupt:  # also while modules load, before a command can take it
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is to end with that status


def _run() -> int:
    open_stdio()
    if len(sys.argv) > 1 and sys.argv[1] in AGENT_SIDE:
        from amux.materializer.agentside.main import main as agent_side  # noqa: PLC0415  # start-up time

        return agent_side(sys.argv[1:])
    gc.disable()  # nothing is garbage while modules load; `amux.launcher.cli` switches it on again
    from amux.launcher.cli import main as people_side  # noqa: PLC0415  # start-up time

    return people_side()


def open_stdio() -> None:
    """Put /dev/null where a caller closed stdin, stdout or stderr.

    The next file that is opened would take its number, and be the agent's stdin.
    """
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:  # noqa: PLR2004  # stderr
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)  # noqa: FBT003  # os takes no name


if __name__ == "__main__":
    sys.exit(main())
