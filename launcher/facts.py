"""Read the files that a provider asked about.

The files are the target's own, so they may be anything: each is opened without following a last
link, without blocking, and read to a bound. What cannot be read counts as not there.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from providers.base import Facts

MAX_FACT_BYTES: Final = 1024 * 1024


def read_facts(paths: tuple[str, ...]) -> Facts:
    """Return each path's first MAX_FACT_BYTES bytes, or None where no regular file can be read."""
    return Facts({path: _read(path) for path in paths})


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no Path
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(MAX_FACT_BYTES)
