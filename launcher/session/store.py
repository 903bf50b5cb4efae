"""The session store: one JSON file per session under `<home>/sessions/`, replaced durably.

A lock file beside it is held while a run of the session lives, by the supervisor and by the run's
shim, so it outlives a killed supervisor for as long as anything of the run does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import replace_file, sync_folder
from amux.hub.residence import residence
from amux.launcher.errors import BadRequest, SessionDamaged, SessionNotFound, SessionRunning
from amux.launcher.process.stdio import above_stdio
from amux.launcher.session.record import (
    RecordedEvidence,
    RunProcess,
    SessionRecord,
    State,
    TranscriptMark,
    timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "DamagedRecord",
    "Listing",
    "RecordedEvidence",
    "RunProcess",
    "SessionLock",
    "SessionRecord",
    "SessionStore",
    "State",
    "TranscriptMark",
    "timestamp",
]

ENDING: Final = ".json"
LOCK_WAIT: Final = 0.5
"""Seconds to wait for a session's lock: somebody may only be looking."""
TEMPORARY_AGE: Final = 3600.0
"""Seconds after which a temporary file is nobody's any more."""
NAMED: Final = 5
"""How many of the sessions that a short id could mean are named."""
RECORD_BYTES: Final = 32 * 1024 * 1024
"""More than a record can hold: a command line and the texts of one launch."""
IDENTIFIER: Final = re.compile(r"[a-z0-9]{4,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord:
    """A record file that cannot be read, and why."""

    id: str
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Every record of a store, newest first, and the files that could not be read."""

    records: tuple[SessionRecord, ...] = ()
    damaged: tuple[DamagedRecord, ...] = ()


@dataclass(slots=True)
class SessionLock:
    """The right to run a session. The run's shim may hold the same descriptor.

    With `unsettled` its file stays: the record does not say how the run ended, or something of it
    could not be ended, so the next start of amux has to look.
    """

    descriptor: int
    path: Path
    unsettled: bool = False

    def close(self) -> None:
        """Let go; the session stays locked while the run's shim holds the descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def release(self) -> None:
        """Let go when nothing of the run is left: without the file nothing is to reconcile."""
        if self.descriptor >= 0:
            if not self.unsettled:
                self.path.unlink(missing_ok=True)
            self.close()


class SessionStore:
    """The session records of one AMUX_HOME. Safe to use from many threads and processes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "sessions"
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def new_id(self) -> str:
        """Return an id that no session has."""
        return secrets.token_hex(8)

    def create(self, record: SessionRecord) -> SessionRecord:
        """Save a new record durably; raise BadRequest if its id is taken."""
        path = self._path(record.id)
        now = timestamp()
        record = replace(record, created=record.created or now, updated=now)
        if path.exists():
            raise BadRequest(f"session {record.id} exists already")
        self._write(path, record)
        return record

    def update(self, record: SessionRecord) -> SessionRecord:
        """Replace a record durably; the caller holds its lock or knows that it has ended."""
        record = replace(record, updated=timestamp())
        self._write(self._path(record.id), record)
        return record

    def load(self, session: str) -> SessionRecord:
        """Return one record; raise SessionNotFound or SessionDamaged."""
        path = self._path(session)
        try:
            record = SessionRecord.parse(_content(path).decode())
        except FileNotFoundError:
            raise SessionNotFound(
                f"there is no session {session}; `amux sessions list` shows them"
            ) from None
        except OSError as error:
            raise SessionDamaged(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise SessionDamaged(f"{path} cannot be read: {error}") from error
        if record.id != session:
            raise SessionDamaged(f"{path} holds the record of {record.id}")
        return record

    def find(self, session: str) -> str:
        """Return the id that is `session` or, of all ids, alone begins with it.

        Raises SessionNotFound, and BadRequest where several begin so.
        """
        if self._path(session).exists():
            return session
        found = sorted(path.stem for path in self.folder.glob(f"{session}*{ENDING}"))
        if not found:
            raise SessionNotFound(f"there is no session {session}; `amux sessions list` shows them")
        if len(found) > 1:
            shown = ", ".join(found[:NAMED]) + (", …" if len(found) > NAMED else "")
            raise BadRequest(f"{len(found)} sessions begin with {session}: {shown}")
        return found[0]

    def list(self) -> Listing:
        """Return all records, newest first, and what could not be read."""
        records: list[SessionRecord] = []
        damaged: list[DamagedRecord] = []
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            try:
                records.append(self.load(path.stem))
            except SessionNotFound:
                continue
            except (SessionDamaged, BadRequest) as error:
                damaged.append(DamagedRecord(id=path.stem, path=path, reason=str(error)))
        records.sort(key=lambda record: (record.created, record.id), reverse=True)
        return Listing(tuple(records), tuple(damaged))

    def by_native_id(self, provider: str, native_id: str) -> SessionRecord | None:
        """Return the newest session of that native conversation."""
        if not native_id:
            return None
        for record in self.list().records:
            own = (record.native_id, *record.conversations)
            if record.provider == provider and native_id in own:
                return record
        return None

    def lock(self, session: str, *, wait: float = LOCK_WAIT) -> SessionLock:
        """Take the right to run the session; raise SessionRunning if a run of it lives."""
        path = self._lock_path(session)
        until = time.monotonic() + wait
        while True:
            descriptor = self._open_lock(path, os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() > until:
                    raise SessionRunning(
                        f"session {session} has a live run; stop it or wait for its end"
                    ) from None
                time.sleep(0.02)
                continue
            # `prune` may have removed the file between our open and our lock.
            if _same_file(descriptor, path):
                return SessionLock(descriptor, path)
            os.close(descriptor)

    @contextmanager
    def locked(self, session: str, *, wait: float = LOCK_WAIT) -> Iterator[SessionLock]:
        """Hold the session's lock for a while; it stays unsettled where a record is not written."""
        lock = self.lock(session, wait=wait)
        try:
            yield lock
        except OSError:
            lock.unsettled = True
            raise
        finally:
            lock.release()

    def copied(self, record: SessionRecord) -> bool:
        """Say whether the record came here with a copy of the home that its run belongs to."""
        return bool(record.home) and record.home != residence(self.home).identity

    def live(self, session: str) -> bool:
        """Say whether a run of the session lives."""
        try:
            descriptor = self._open_lock(self._lock_path(session))
        except SessionNotFound:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def sweep(self) -> None:
        """Remove temporary files that a killed process left."""
        oldest = time.time() - TEMPORARY_AGE
        for path in self.folder.glob(".*.tmp"):
            with suppress(FileNotFoundError):
                if path.stat(follow_symlinks=False).st_mtime < oldest:
                    path.unlink()

    def untold(self, records: Iterable[SessionRecord]) -> tuple[str, ...]:
        """Return those that are said to run and that nobody holds: their end was never written."""
        found = []
        for record in records:
            with suppress(SessionDamaged):
                if record.active and not self.live(record.id):
                    found.append(record.id)
        return tuple(found)

    def unfinished(self) -> tuple[str, ...]:
        """Return the sessions with a lock file: those that run, and those whose run was cut off."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.lock")))

    def remove(self, session: str) -> None:
        """Forget a session that does not run."""
        with self.locked(session):
            self._path(session).unlink(missing_ok=True)
            sync_folder(self.folder)

    def _open_lock(self, path: Path, flags: int = 0) -> int:
        """Open a lock file, or what lies in its place; raise SessionNotFound, SessionDamaged."""
        flags |= os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            raise SessionNotFound(f"no run of session {path.stem} is under way") from None
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENFILE}:
                raise
            raise SessionDamaged(f"{path} cannot be used as a lock: {error.strerror}") from error
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return above_stdio(descriptor)  # the run's shim inherits it
        os.close(descriptor)
        raise SessionDamaged(f"{path} is not a regular file, so it cannot be used as a lock")

    def _path(self, session: str) -> Path:
        if not IDENTIFIER.fullmatch(session):
            raise BadRequest(f"{session!r} is not a session id; `amux sessions list` shows them")
        return self.folder / f"{session}{ENDING}"

    def _lock_path(self, session: str) -> Path:
        return self._path(session).with_suffix(".lock")

    def _write(self, path: Path, record: SessionRecord) -> None:
        try:
            data = record.text().encode()
        except ValueError as error:
            raise BadRequest(f"session {record.id} cannot be recorded: {error}") from error
        replace_file(path, data)


def _content(path: Path) -> bytes:
    """Read a regular file of bounded size without waiting; raise OSError or ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(RECORD_BYTES + 1)
    if len(data) > RECORD_BYTES:
        raise ValueError(f"it has more than {RECORD_BYTES} bytes")
    return data


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
