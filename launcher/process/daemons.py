"""What an agent left behind to live on by itself, as daemons do: named, since its run ends it.

Standard library only, and cheap modules alone: the shim imports it.
"""

from __future__ import annotations

from amux.launcher.process.table import name
from amux.procstat import look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from amux.procstat import Process

NAMED = 6
"""Names in one sentence; the rest is counted."""
HANGUP = 1
"""SIGHUP's bit in `SigIgn`."""


def find(pids: Iterable[int], session: int, *, deaf: bool) -> list[Process]:
    """Return the processes that left the agent's `session`, or are deaf to HUP as under nohup.

    With `deaf` the agent itself was started so, and its children being so says nothing.
    """
    found = [process for process in map(look, pids) if process is not None and process.lives]
    return [
        one for one in found if one.session != session or (not deaf and _ignores_hangup(one.pid))
    ]


def named(processes: Iterable[Process]) -> str:
    """Return the names of these processes, each once, fit for one line."""
    names = list(dict.fromkeys(filter(None, (name(process.pid) for process in processes))))
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join(names[:NAMED] + more)


def _ignores_hangup(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123  # pathlib is too heavy here
            _, _, rest = file.read().partition(b"\nSigIgn:")
    except OSError:
        return False
    return bool(int(rest.split(maxsplit=1)[0], 16) & HANGUP) if rest else False
