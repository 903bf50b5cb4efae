"""The mark that says a home's Hub was stopped on purpose, so that nobody starts it again unasked.

A Hub that is killed leaves none, nor does one that a service manager ends with its whole group.
It is set before the Hub is told to stop, and looked at by one that starts unasked once it has said
its name: of a stop and such a start at once the stop wins.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from amux.hub.home import PRIVATE_FILE

if TYPE_CHECKING:
    from pathlib import Path

STOP_FILE: Final = "hub.stopped"
STOPPED: Final = "the Hub was stopped on purpose"


def set_mark(home: Path) -> None:
    """Say that the Hub is to stay stopped until somebody starts one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):  # a disk that takes no file takes no new Hub either
        os.close(os.open(home / STOP_FILE, flags, PRIVATE_FILE))


def clear_mark(home: Path) -> None:
    """Take the mark away: a Hub starts."""
    with contextlib.suppress(OSError):
        (home / STOP_FILE).unlink()


def is_marked(home: Path) -> bool:
    """Say whether the Hub was stopped on purpose."""
    return os.path.lexists(home / STOP_FILE)
