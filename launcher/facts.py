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
MAX_LISTED: Final = 100


def read_facts(paths: tuple[str, ...]) -> Facts:
    """Return each path's first MAX_FACT_BYTES bytes, or None where no regular file can be read.

    A last segment `*.ending` stands for each such file of its folder, MAX_LISTED at most.
    """
    return Facts({path: _read(path) for asked in paths for path in _listed(asked)})


def _listed(path: str) -> list[str]:
    folder, _, name = path.rpartition("/")
    if not name.startswith("*."):
        return [path]
    try:
        found = sorted(one for one in os.listdir(folder) if one.endswith(name[1:]))  # noqa: PTH208  # names are wanted
    except OSError:
        return []
    return [f"{folder}/{one}" for one in found[:MAX_LISTED]]


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no Path
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(MAX_FACT_BYTES)
