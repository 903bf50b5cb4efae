"""The limit of open files: a supervisor of hundreds needs more than the usual 1,024.

Each session holds six descriptors. The soft limit is raised for this process alone: agents get
back the one that it was started with, since old programs count on a low one.
"""

from __future__ import annotations

import resource
import threading
from typing import Final

WANTED: Final = 65_536

_lock = threading.Lock()
_original = 0


def raise_open_files() -> None:
    """Raise the soft limit as far as the hard one allows, once."""
    global _original  # noqa: PLW0603  # a process has one limit
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
        if _original == 0 and 0 <= soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _original = soft


def original_open_files() -> int:
    """Return the soft limit that agents get back; 0 where it was not raised."""
    return _original
