"""Go through a scope's files in path order, from any point on.

Order is that of the whole path's code points. A position in it is a path, or a folder's
path with `0` (the character after `/`) in place of its last slash: past all of the folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from amux.hub.paths import FOLDER_FLAGS, SUFFIX, segment_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.hub.filesystem import FileSystem
    from amux.hub.limits import Limits

_PAST_FOLDER: Final = "0"
_CLOSED: Final = -1
# A path has room for 512 folders; so many open ones at once could use up the process's.
_KEPT_OPEN: Final = 16
_Listed = tuple[str, os.DirEntry[str]]
_key = itemgetter(0)


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
    only: str = ""
    """Leave out everything in `top` but the entry of this name."""
    entries: int = 0
    """Directory entries met so far."""
    overfull: bool = False
    """Whether a folder was left out because it holds too many."""
    misnamed: int = 0
    """Of these, such as no path can name, although they look like documents or folders."""
    _open: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Step]:
        try:
            yield from self._steps()
        finally:
            while self._open:
                self._leave()

    def _steps(self) -> Iterator[Step]:
        listing = self._list(self.top, self.base, self.only)
        if listing is None:
            yield Step(Kind.SKIPPED, self.base, self.top, "")
            return
        stack = [(self.base, iter(listing))]
        while stack:
            base, rest = stack[-1]
            folder = self._open[-1] if self._open else self.top
            key, entry = next(rest, (None, None))
            if key is None or entry is None:
                stack.pop()
                if stack:
                    yield Step(Kind.PASSED, base[:-1] + _PAST_FOLDER, folder, "")
                    self._leave()
            elif not key.endswith("/"):
                kind = Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.SKIPPED
                yield Step(kind, base + key, folder, key)
            elif entered := self._enter(entry.name, folder, base + key):
                stack.append(entered)
            else:
                yield Step(Kind.SKIPPED, base + key[:-1] + _PAST_FOLDER, folder, "")

    def _enter(self, name: str, parent: int, base: str) -> tuple[str, Iterator[_Listed]] | None:
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=parent)
        except OSError:
            return None
        listing = self._list(folder, base)
        if listing is None:
            os.close(folder)
            return None
        if len(self._open) > _KEPT_OPEN:
            os.close(self._open[-1])
            self._open[-1] = _CLOSED
        self._open.append(folder)
        self._names.append(name)
        return base, iter(listing)

    def _leave(self) -> None:
        folder = self._open.pop()
        self._names.pop()
        if folder != _CLOSED:
            os.close(folder)
        if self._open and self._open[-1] == _CLOSED:
            self._open[-1] = self._reopen()

    def _reopen(self) -> int:
        """Open the last folder again, which was too deep to be kept open.

        If it is gone, what is left of it fails to open and is skipped.
        """
        folder = os.dup(self._open[_KEPT_OPEN - 1])
        for name in self._names[_KEPT_OPEN:]:
            try:
                child = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            except OSError:
                return _CLOSED
            finally:
                os.close(folder)
            folder = child
        return folder

    def _list(self, folder: int, base: str, only: str = "") -> list[_Listed] | None:
        """Return what a folder holds behind `after`, in order, folders with a slash."""
        found: list[_Listed] = []
        longest = self.limits.path_bytes - len(base.encode())
        misnamed = seen = 0
        try:
            with self.files.scan(folder) as entries:
                for entry in entries:
                    seen += 1
                    if seen > self.limits.folder_entries:
                        self.overfull = True
                        return None
                    name = entry.name
                    if only and name != only:
                        continue
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if name[0] == "." or not (is_folder or name.endswith(SUFFIX)):
                        continue
                    if segment_fault(name, self.limits) or len(name.encode()) > longest:
                        misnamed += 1
                    else:
                        found.append((name + "/" if is_folder else name, entry))
        except OSError:
            return None
        finally:
            self.entries += seen
        if self.after:
            found = [pair for pair in found if self._lies_ahead(base + pair[0])]
        if not (self.after and self.after.startswith(base)):
            self.misnamed += misnamed
        found.sort(key=_key)
        return found

    def _lies_ahead(self, path: str) -> bool:
        return path > self.after or (path[-1] == "/" and self.after.startswith(path))
