"""The one path gate: what a path may look like, and how it is opened.

A path is checked as text first, then opened segment by segment from a folder that is
held open, each with `O_NOFOLLOW`, so that no symlink is followed and nothing that
moves meanwhile can lead out of the scope.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub.errors import InvalidPath, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from amux.hub.filesystem import FileSystem
    from amux.hub.limits import Limits

SUFFIX: Final = ".md"
ENTRY: Final = "MEMORY.md"
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._ -]*", re.ASCII)
# Cc control, Cf format, Cs surrogate, Zl and Zp line and paragraph separator.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def segment_fault(segment: str, limits: Limits) -> str | None:
    """Return why a segment is refused, or None."""
    if _PLAIN.fullmatch(segment) and len(segment) <= limits.segment_bytes:
        return None
    if not segment or segment.startswith("."):
        return "has an empty segment or one that begins with a dot"
    if any(unicodedata.category(character) in _UNSEEN for character in segment):
        return "has a control or format character"
    if not unicodedata.is_normalized("NFC", segment):
        return "is not in Unicode form NFC"
    if len(segment.encode()) > limits.segment_bytes:
        return f"has a segment of more than {limits.segment_bytes} bytes"
    return None


def _segments(path: str, limits: Limits) -> tuple[str, ...]:
    size = len(path.encode(errors="surrogatepass"))
    if size > limits.path_bytes:
        raise InvalidPath(
            f"the path has {size} bytes; at most {limits.path_bytes} are taken",
            limit="path_bytes",
            maximum=limits.path_bytes,
            size=size,
        )
    segments = tuple(path.split("/"))
    for segment in segments:
        fault = segment_fault(segment, limits)
        if fault:
            raise InvalidPath(f"the path {fault}; use one such as projects/amux/decisions.md")
    return segments


def parse_document(path: str, limits: Limits) -> tuple[str, ...]:
    """Return the segments of a document's path, the last one its file name.

    Raises InvalidPath.
    """
    segments = _segments(path, limits)
    if not path.endswith(SUFFIX):
        raise InvalidPath("the path does not end with .md; memory holds Markdown documents only")
    if len(segments) == 1 and path != ENTRY and twin_key(path) == twin_key(ENTRY):
        raise InvalidPath(f"the entry document is spelled {ENTRY}")
    return segments


def parse_prefix(prefix: str, limits: Limits) -> tuple[str, ...]:
    """Return the segments of a search's path prefix, none for the whole scope.

    One slash at the end is allowed. Raises InvalidPath.
    """
    return _segments(prefix.removesuffix("/"), limits) if prefix else ()


def twin_key(name: str) -> str:
    """Return what two names share when they differ by case or Unicode form only."""
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFD", name).casefold()
    return unicodedata.normalize("NFC", folded)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: the deepest folder that exists, and the segments not found in it."""

    folder: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The folders from `AMUX_HOME` to a document: the store's own, then the caller's."""

    home: Path
    own: tuple[str, ...]
    segments: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Return every segment below `home`."""
        return self.own + self.segments


def open_folder(name: str, parent: int, *, ours: bool) -> int:
    """Open one folder below another, refusing a symlink and anything else.

    `ours` says that the store made the name, so that a fault is the store's and not the
    caller's. Raises FileNotFoundError, InvalidPath or StorageFailed.
    """
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise StorageFailed(f"a folder cannot be opened: {error.strerror}") from error
    link = _is_symlink(name, parent)
    found = "a symlink, and symlinks are not followed" if link else "not a folder"
    if ours:
        raise StorageFailed(f"the memory folder {name} is {found}")
    raise InvalidPath(f"{name} in the path is {found}")


def _is_symlink(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def exists(name: str, folder: int) -> bool:
    """Tell whether anything stands in the open folder under this name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def open_home(home: Path) -> int:
    """Open the folder that holds the memory root; raises StorageFailed."""
    try:
        return os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageFailed(f"the Hub's home cannot be opened: {error.strerror}") from error


@contextmanager
def follow(way: Way, *, files: FileSystem, limits: Limits) -> Iterator[Place]:
    """Open the folders of `way` one by one, as far as they exist.

    A missing folder's name must not be another's twin. Raises InvalidPath, StorageFailed.
    """
    folder = open_home(way.home)
    try:
        missing: tuple[str, ...] = ()
        for index, segment in enumerate(way.all):
            ours = index < len(way.own)
            try:
                child = open_folder(segment, folder, ours=ours)
            except FileNotFoundError:
                if not ours:
                    refuse_twin(segment, folder, files=files, limits=limits)
                missing = way.all[index:]
                break
            os.close(folder)
            folder = child
        yield Place(folder, missing)
    finally:
        os.close(folder)


def refuse_twin(name: str, folder: int, *, files: FileSystem, limits: Limits) -> None:
    """Refuse a name that is not in the folder while one that differs by case or form is.

    Raises InvalidPath, or StorageFailed when the folder cannot be listed.
    """
    key = twin_key(name)
    for other in names(folder, files=files, most=limits.folder_entries):
        if other != name and twin_key(other) == key:
            raise InvalidPath(
                f"{name} differs from the existing name {_shown(other)} "
                "only by case or Unicode form; use the existing one"
            )


def _shown(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


def names(folder: int, *, files: FileSystem, most: int) -> Sequence[str]:
    """Return a folder's entry names, at most `most`; raises StorageFailed."""
    try:
        with files.scan(folder) as entries:
            return [entry.name for entry, _ in zip(entries, range(most), strict=False)]
    except OSError as error:
        raise StorageFailed(f"a folder cannot be listed: {error.strerror}") from error
