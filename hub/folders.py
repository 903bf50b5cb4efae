"""Make the folders above a document, each on the disk before anything is put into it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from hub.errors import HubError
from hub.paths import follow, open_folder, open_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.durable import FileSystem
    from hub.limits import Limits
    from hub.paths import Way

_REMEMBERED_MOST: Final = 65536


class FolderMaker:
    """Open a document's folder, making what is missing.

    A folder that this process meets for the first time may have been made by one that was
    killed before its fsync, so the parent of each such folder is brought to the disk once.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._settled: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    @contextmanager
    def folder(self, way: Way) -> Iterator[int]:
        """Open the last folder of `way`; raises OSError, InvalidPath, StorageFailed."""
        folder = open_home(way.home)
        try:
            for index, segment in enumerate(way.all):
                child = self._child(segment, folder, ours=index < len(way.own))
                os.close(folder)
                folder = child
            yield folder
        finally:
            os.close(folder)

    def _child(self, segment: str, parent: int, *, ours: bool) -> int:
        try:
            child = open_folder(segment, parent, ours=ours)
        except FileNotFoundError:
            with suppress(FileExistsError):  # two scopes can need `users` at once
                self._files.mkdir(segment, parent)
            child = open_folder(segment, parent, ours=ours)
        try:
            self._settle(child, parent)
        except BaseException:
            os.close(child)
            raise
        return child

    def _settle(self, child: int, parent: int) -> None:
        status = os.fstat(child)
        key = status.st_dev, status.st_ino
        if key in self._settled:
            return
        self._files.fsync(parent)
        with self._lock:
            if len(self._settled) >= _REMEMBERED_MOST:
                self._settled.clear()
            self._settled.add(key)

    def forget(self, status: os.stat_result) -> None:
        """Forget a removed folder: a new one may get its number."""
        with self._lock:
            self._settled.discard((status.st_dev, status.st_ino))


def prune(way: Way, maker: FolderMaker, *, files: FileSystem, limits: Limits) -> None:
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
                    status = os.stat(last, dir_fd=place.folder, follow_symlinks=False)
                    files.rmdir(last, place.folder)
                    maker.forget(status)
            segments = tuple(above)
