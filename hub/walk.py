"""Go through a scope's files in path order, from any point on.

Order is that of the whole path's code points. A position in it is a path, or a folder's
path with `0` (the character after `/`) in place of its last slash: past all of the folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from hub.paths import FOLDER_FLAGS, SUFFIX, segment_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.durable import FileSystem
    from hub.limits import Limits

_PAST_FOLDER: Final = "0"
_Listed = tuple[str, os.DirEntry[str]]


class Kind(Enum):
    """What stands at a step of the walk."""

    FILE = auto()
    """A regular file with a document's name."""
    SKIPPED = auto()
    """A document's name on something else, or a folder that cannot be listed."""
    PASSED = auto()
    """The end of a folder."""


class Step(NamedTuple):
    """One thing met: its position, the open folder it stands in, and its name there."""

    kind: Kind
    position: str
    folder: int
    name: str


@dataclass(slots=True)
class Walk:
    """Walk the open folder `top`, whose path is `base` (empty, or with a slash at its end).

    What does not stand behind the position `after` is left out. `top` stays open. A
    symlink is never followed, and a name that begins with a dot is not looked at.
    """

    top: int
    base: str
    files: FileSystem
    limits: Limits
    after: str = ""
    entries: int = 0
    """Directory entries met so far."""
    misnamed: int = 0
    """Of these, such as no path can name, although they look like documents or folders."""
    _open: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[Step]:
        try:
            yield from self._steps()
        finally:
            while self._open:
                os.close(self._open.pop())

    def _steps(self) -> Iterator[Step]:
        listing = self._list(self.top, self.base)
        if listing is None:
            yield Step(Kind.SKIPPED, self.base, self.top, "")
            return
        stack = [(self.top, self.base, iter(listing))]
        while stack:
            folder, base, rest = stack[-1]
            key, entry = next(rest, (None, None))
            if key is None or entry is None:
                stack.pop()
                if stack:
                    os.close(self._open.pop())
                    yield Step(Kind.PASSED, base[:-1] + _PAST_FOLDER, folder, "")
            elif not key.endswith("/"):
                kind = Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.SKIPPED
                yield Step(kind, base + key, folder, key)
            elif entered := self._enter(entry.name, folder, base + key):
                stack.append(entered)
            else:
                yield Step(Kind.SKIPPED, base + key[:-1] + _PAST_FOLDER, folder, "")

    def _enter(
        self, name: str, parent: int, base: str
    ) -> tuple[int, str, Iterator[_Listed]] | None:
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=parent)
        except OSError:
            return None
        self._open.append(folder)
        listing = self._list(folder, base)
        if listing is None:
            os.close(self._open.pop())
            return None
        return folder, base, iter(listing)

    def _list(self, folder: int, base: str) -> list[_Listed] | None:
        """Return what a folder holds behind `after`, in order, folders with a slash."""
        found: list[_Listed] = []
        misnamed = seen = 0
        try:
            with self.files.scan(folder) as entries:
                for entry in entries:
                    seen += 1
                    if seen > self.limits.folder_entries:
                        return None
                    if entry.name.startswith("."):
                        continue
                    key = self._key(entry)
                    if key is None:
                        continue
                    if self._nameable(base, entry.name):
                        found.append((key, entry))
                    else:
                        misnamed += 1
        except OSError:
            return None
        finally:
            self.entries += seen
        if not (self.after and self.after.startswith(base)):
            self.misnamed += misnamed
        found = [pair for pair in found if self._lies_ahead(base + pair[0])]
        found.sort(key=lambda pair: pair[0])
        return found

    @staticmethod
    def _key(entry: os.DirEntry[str]) -> str | None:
        if entry.is_dir(follow_symlinks=False):
            return entry.name + "/"
        return entry.name if entry.name.endswith(SUFFIX) else None

    def _nameable(self, base: str, name: str) -> bool:
        if segment_fault(name, self.limits):
            return False
        return len(base.encode()) + len(name.encode()) <= self.limits.path_bytes

    def _lies_ahead(self, path: str) -> bool:
        return path > self.after or self.after.startswith(path)
