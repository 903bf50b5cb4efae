"""Remove the temporary files that a killed process left in a home, outside `memory/`.

Each is removed under the lock that its writer holds, or once it is old: none that is being
written just now. The caller holds the home's root.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import locked

if TYPE_CHECKING:
    from pathlib import Path

OLD_SECONDS: Final = 3600.0
_REPLACED: Final = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_CONFIG: Final = re.compile(r"\.config\.toml\.[0-9a-f]{12}\.tmp")
_OURS: Final = re.compile(r"\.(hub|agent)\.sock\.[0-9a-f]{8}|\.amux-[0-9a-f]{16}\.tmp")
_LINK: Final = re.compile(r"\.amux\.[0-9]+\.[0-9a-f]{8}")


def remove_leftovers(home: Path) -> int:
    """Remove them and return how many; a folder that is not there, or refuses, has none."""
    removed = _remove(home, _OURS)
    for folder, lock, pattern in (
        (home, home / ".config.lock", _CONFIG),
        (home / "identity", home / "identity" / ".lock", _REPLACED),
        (home / "connections", home / "connections" / ".lock", _REPLACED),
    ):
        if folder.is_dir() and _any(folder, pattern):
            with contextlib.suppress(OSError), locked(lock):
                removed += _remove(folder, pattern)
    for folder in (home, home / "cache", home / "sessions"):
        removed += _remove(folder, _REPLACED, older=OLD_SECONDS)
    return removed + _remove(home / "bin", _LINK, older=OLD_SECONDS)


def _any(folder: Path, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(path.name) for path in folder.iterdir())


def _remove(folder: Path, pattern: re.Pattern[str], *, older: float = 0.0) -> int:
    removed = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not pattern.fullmatch(entry.name) or entry.is_dir(follow_symlinks=False):
                continue
            age = time.time() - entry.stat(follow_symlinks=False).st_mtime
            if not older or age > older:
                (folder / entry.name).unlink()
                removed += 1
    return removed
