"""What the kernel says of one process in `/proc/PID/stat`.

Imports nothing, since each agent's shim passes through it. What runs beside an agent, which has
only files of its own, reads its one field itself.
"""

from __future__ import annotations


class Process:
    """What `/proc/PID/stat` says of a process. `start` is in clock ticks since boot.

    pid and start together name one process for as long as the machine runs.
    """

    __slots__ = ("group", "parent", "pid", "session", "start", "state", "threads")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.state = fields[0]
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.threads = int(fields[17])
        self.start = int(fields[19])

    @property
    def lives(self) -> bool:
        """Say whether it runs. One whose first thread has ended looks like a zombie, and does."""
        return self.state not in b"ZX" or self.threads > 1

    @property
    def stopped(self) -> bool:
        """Say whether it is stopped."""
        return self.state in b"Tt"


def look(pid: int) -> Process | None:
    """Return one process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib is too heavy here
            # The second field is the name that a process gives itself: it may hold anything.
            return Process(pid, file.read().rpartition(b")")[2].split())
    except (OSError, IndexError, ValueError):
        return None
