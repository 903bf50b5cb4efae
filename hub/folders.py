"""Make the folders above a document, each on the disk before anything is put into it."""

from __future__ import annotations

import itertools
import os
import resource
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HubError
from amux.hub.paths import follow, open_folder, open_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.hub.filesystem import FileSystem
    from amux.hub.limits import Limits
    from amux.hub.paths import Way

_HELD_LEAST: Final = 64
_HELD_MOST: Final = 4096


class _Settled:
    """A folder whose name is on the disk, held open so that no other gets its number."""

    __slots__ = ("_folder", "identity", "serial")

    def __init__(self, folder: int, serial: int) -> None:
        self._folder = os.dup(folder)
        self.identity = identity_of(folder)
        self.serial = serial

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._folder)


class FolderMaker:
    """Open a document's folder, making what is missing.

    A folder that this process meets for the first time may have been made by one that was
    killed before its fsync, so the parent of each such folder is brought to the disk once.

    What was brought there is the name of one folder in another. An inode number does not
    tell which: a folder that somebody removes leaves it to the next one. So a settled folder
    is held open, and its parent is named by a number of our own that is never given again.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._settled: dict[tuple[int, str], _Settled] = {}
        self._serials = itertools.count(1)
        self._lock = threading.Lock()

    @contextmanager
    def folder(self, way: Way) -> Iterator[int]:
        """Open the last folder of `way`; raises OSError, InvalidPath, StorageFailed."""
        folder = open_home(way.home)
        try:
            serial = self._serial_of(folder, (0, ""))
            for index, segment in enumerate(way.all):
                child = self._child(segment, folder, ours=index < len(way.own))
                parent, folder = folder, child
                try:
                    serial = self._settle(folder, parent, (serial, segment))
                finally:
                    os.close(parent)
            yield folder
        finally:
            os.close(folder)

    def _child(self, segment: str, parent: int, *, ours: bool) -> int:
        try:
            return open_folder(segment, parent, ours=ours)
        except FileNotFoundError:
            with suppress(FileExistsError):  # two scopes can need `users` at once
                self._files.mkdir(segment, parent)
            return open_folder(segment, parent, ours=ours)

    def _settle(self, child: int, parent: int, key: tuple[int, str]) -> int:
        with self._lock:
            known = self._settled.get(key)
        if known is not None and known.identity == identity_of(child):
            return known.serial
        self._files.fsync(parent)
        return self._serial_of(child, key)

    def _serial_of(self, folder: int, key: tuple[int, str]) -> int:
        """Remember a folder under `key`, unless it is what stands there; return its serial."""
        with self._lock:
            known = self._settled.get(key)
            if known is None or known.identity != identity_of(folder):
                if len(self._settled) >= held_most():
                    self._settled.clear()
                serial = next(self._serials)
                try:
                    known = self._settled[key] = _Settled(folder, serial)
                except OSError:  # no descriptor is left: settled again next time
                    return serial
            return known.serial


def identity_of(folder: int) -> tuple[int, int]:
    """Return what tells two folders apart as long as both are open."""
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def held_most() -> int:
    """Return how many folders are held: connections need most of the descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _HELD_MOST
    return max(_HELD_LEAST, min(_HELD_MOST, soft // 8))


def prune(way: Way, *, files: FileSystem, limits: Limits) -> None:
    """Remove the caller's folders of `way` that are empty now, from the last one up.

    An empty folder would keep its name from being spelled in another case. What cannot
    be removed stays: nothing depends on it.
    """
    segments = way.segments
    with suppress(OSError, HubError):
        while segments:
            *above, last = segments
            parents = type(way)(home=way.home, own=way.own, segments=tuple(above))
            with follow(parents, files=files, limits=limits) as place:
                if not place.missing:
                    files.rmdir(last, place.folder)
            segments = tuple(above)
