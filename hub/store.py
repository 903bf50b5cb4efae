"""The memory store: four verbs on the Markdown files of one root.

Everything is read from the files at each call, so an offline edit is seen at once. A
write or a delete holds its scope's lock; a read holds none, since a document is only
ever replaced as a whole.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from amux.hub import checks
from amux.hub.census import Census, count, refuse_overflow
from amux.hub.documents import FILE_FLAGS, Document, is_text, read_document, revision_of
from amux.hub.durable import Overtaken, is_temporary, refusal, remove, replace
from amux.hub.errors import HubError, StorageFailed
from amux.hub.filesystem import FileSystem
from amux.hub.folders import FolderMaker, prune
from amux.hub.fragments import check_range, fragment
from amux.hub.guard import Guarding
from amux.hub.limits import Limits
from amux.hub.paths import (
    SUFFIX,
    Place,
    Way,
    exists,
    follow,
    parse_document,
    parse_prefix,
    refuse_twin,
)
from amux.hub.search import Scan, answer, check_query, parse_query
from amux.hub.values import (
    ABSENT,
    ForgetRequest,
    Forgotten,
    Fragment,
    GetRequest,
    Scope,
    SearchAnswer,
    SearchRequest,
    UpsertRequest,
    Written,
)
from amux.hub.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.hub.guard import Finding

# A scan needs the processor all the time: more at once would only make each run out of its
# own time, which begins when its turn has come.
_SCANS_AT_ONCE: Final = 2
_GUARDING: Final = Guarding()


class MemoryStore:
    """Keep Markdown documents below `root`, which one process owns.

    Safe to call from many threads. `now` is Unix time for ages, `monotonic` measures a
    search; these, `files` and `limits` are there for tests. `warn` is told of what the guard
    found when its mode is `warn`.
    """

    def __init__(  # noqa: PLR0913  # the seams are keyword-only, each with its default
        self,
        root: Path,
        *,
        limits: Limits | None = None,
        guard: Guarding = _GUARDING,
        warn: Callable[[Finding], None] | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        files: FileSystem | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._root = root
        self._guard = guard
        self._warn = warn
        self._now = now
        self._monotonic = monotonic
        self._files = files or FileSystem()
        self._maker = FolderMaker(self._files)
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._locks_guard = threading.Lock()
        self._scans = threading.Semaphore(_SCANS_AT_ONCE)

    def search(self, scope: Scope, request: SearchRequest) -> SearchAnswer:
        """Return one page of the documents that hold any of the query's terms.

        Raises InvalidRequest, InvalidPath, LimitExceeded, StorageFailed.
        """
        query = parse_query(request)
        prefix = parse_prefix(request.path_prefix, self.limits)
        check_query(request, self.limits)
        # A prefix may name one document; then its folder is walked for that name alone.
        split = len(prefix) - bool(prefix and prefix[-1].endswith(SUFFIX))
        folders, only = prefix[:split], "".join(prefix[split:])
        with self._scans, self._follow(scope, folders) as place:
            if only and not place.missing and not exists(only, place.folder):
                refuse_twin(only, place.folder, files=self._files, limits=self.limits)
            walk = Walk(
                place.folder,
                "".join(segment + "/" for segment in folders),
                self._files,
                self.limits,
                after=request.cursor or "",
                only=only,
            )
            scan = Scan(
                query=query,
                walk=walk,
                limits=self.limits,
                deadline=self._monotonic() + self.limits.search_seconds,
                monotonic=self._monotonic,
            )
            if not place.missing:
                scan.run()
        return answer(
            scan,
            request.limit or self.limits.results_default,
            now=self._now(),
            reread=lambda path: self._reread(scope, path),
        )

    def get(self, scope: Scope, request: GetRequest) -> Fragment:
        """Return the range of a document that was asked for, as far as one answer holds it.

        Raises InvalidRequest, InvalidPath, LimitExceeded, Undecodable, StorageFailed.
        """
        check_range(request)
        return fragment(self._read(scope, request.path), request, self.limits)

    def upsert(self, scope: Scope, request: UpsertRequest) -> Written:
        """Replace or create the whole document; on the disk when this returns.

        Raises InvalidRequest, InvalidPath, LimitExceeded, RejectedContent, Conflict,
        StorageFailed.
        """
        data = checks.encode_content(request.content)
        checks.check_revision(request.expected_revision)
        segments = parse_document(request.path, self.limits)
        way = self._way(scope, segments[:-1])
        name = segments[-1]
        unwanted = checks.find_unwanted(request, len(data), self.limits)
        with self._lock(scope):
            old = self._find(way, name)
            checks.check_size(request.path, data, self.limits)
            self._check_quota(scope, old, data)
            self._judge(unwanted)
            revision = revision_of(old)
            written = Document(data, 0).revision
            unchanged = revision == written
            if unchanged:
                self._settle(way, name)
            elif revision == request.expected_revision:
                self._write(way, name, data, old)
            else:
                raise checks.conflict(revision)
        return Written(path=request.path, revision=written, unchanged=unchanged)

    def forget(self, scope: Scope, request: ForgetRequest) -> Forgotten:
        """Delete the document; gone from the disk when this returns.

        Raises InvalidRequest, InvalidPath, LimitExceeded, Conflict, StorageFailed.
        """
        checks.check_revision(request.expected_revision)
        segments = parse_document(request.path, self.limits)
        way, name = self._way(scope, segments[:-1]), segments[-1]
        with self._lock(scope):
            old = self._find(way, name)
            revision = revision_of(old)
            if old is not None and revision != request.expected_revision:
                raise checks.conflict(revision)
            if old is None:
                self._settle_absence(way)
            else:
                self._remove(way, name, old.data)
        return Forgotten(path=request.path, revision=ABSENT, already_absent=old is None)

    def sweep(self) -> int:
        """Remove the temporary files that a killed process left; return how many."""
        removed = 0
        pending = [os.fspath(self._root)]
        while pending:
            folder = pending.pop()
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if is_temporary(entry.name) and entry.is_file(follow_symlinks=False):
                        Path(entry.path).unlink()
                        removed += 1
                    elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                        pending.append(entry.path)
        return removed

    def _way(self, scope: Scope, segments: tuple[str, ...]) -> Way:
        own = (self._root.name, *scope.folder.split("/"))
        return Way(home=self._root.parent, own=own, segments=segments)

    def _follow(self, scope: Scope, segments: tuple[str, ...]) -> AbstractContextManager[Place]:
        return follow(self._way(scope, segments), files=self._files, limits=self.limits)

    def _lock(self, scope: Scope) -> threading.Lock:
        with self._locks_guard:
            lock = self._locks.get(scope.folder) or threading.Lock()
            self._locks[scope.folder] = lock
            return lock

    def _read(self, scope: Scope, path: str) -> Document | None:
        segments = parse_document(path, self.limits)
        return self._find(self._way(scope, segments[:-1]), segments[-1])

    def _find(self, way: Way, name: str) -> Document | None:
        """Read the document at the end of `way`; None if neither it nor a twin is there."""
        with follow(way, files=self._files, limits=self.limits) as place:
            if place.missing:
                return None
            document = read_document(name, place.folder, most=self.limits.readable_bytes)
            if document is None:
                refuse_twin(name, place.folder, files=self._files, limits=self.limits)
            return document

    def _reread(self, scope: Scope, path: str) -> Document | None:
        try:
            document = self._read(scope, path)
        except StorageFailed:
            raise
        except HubError:
            return None
        return document if document is not None and is_text(document.data) else None

    def _check_quota(self, scope: Scope, old: Document | None, data: bytes) -> None:
        if old is not None and len(data) <= len(old.data):
            return
        with self._follow(scope, ()) as place:
            if not place.missing:
                census = count(place.folder, files=self._files, limits=self.limits)
            else:
                census = Census(0, 0)
        size = None if old is None else len(old.data)
        refuse_overflow(census, old=size, new=len(data), limits=self.limits)

    def _judge(self, unwanted: tuple[Finding, ...]) -> None:
        for finding in unwanted:
            if self._guard.blocks(finding) or finding.rule == checks.BYTE_ORDER_MARK:
                raise checks.rejected(finding)
        if self._warn is not None:
            for finding in unwanted:
                self._warn(finding)

    def _write(self, way: Way, name: str, data: bytes, old: Document | None) -> None:
        try:
            with self._maker.folder(way) as folder:
                replace(self._files, folder, name, data, old=None if old is None else old.data)
        except Overtaken:
            raise checks.conflict(revision_of(self._find(way, name))) from None
        except OSError as error:
            prune(way, files=self._files, limits=self.limits)
            raise refusal(error) from error

    def _settle(self, way: Way, name: str) -> None:
        """Bring to the disk what stands there: the process that wrote it may have been killed."""
        try:
            with self._maker.folder(way) as folder:
                file = os.open(name, FILE_FLAGS, dir_fd=folder)
                try:
                    self._files.fsync(file)
                finally:
                    os.close(file)
                self._files.fsync(folder)
        except OSError as error:
            raise refusal(error) from error

    def _remove(self, way: Way, name: str, old: bytes) -> None:
        try:
            with self._maker.folder(way) as folder:
                remove(self._files, folder, name, old=old)
        except Overtaken:
            raise checks.conflict(revision_of(self._find(way, name))) from None
        except OSError as error:
            raise refusal(error) from error
        prune(way, files=self._files, limits=self.limits)

    def _settle_absence(self, way: Way) -> None:
        with follow(way, files=self._files, limits=self.limits) as place:
            try:
                self._files.fsync(place.folder)
            except OSError as error:
                raise refusal(error) from error
