"""Session records: what one native conversation was started with, kept for its resumes.

One TOML file per session under `<home>/sessions/`, replaced as a whole and durably. A lock file
beside it is held while a run of the session lives, by the supervisor and by the run's shim, so
it outlives a killed supervisor for as long as anything of the run does.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
import tomllib
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

import tomli_w

from hub.atomicfile import replace_file, sync_folder
from hub.residence import residence
from launcher.errors import BadRequest, SessionDamaged, SessionNotFound, SessionRunning
from providers.sighting import Sighting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA: Final = 1
LOCK_WAIT: Final = 0.5
"""Seconds to wait for a session's lock: somebody may only be looking."""
TEMPORARY_AGE: Final = 3600.0
"""Seconds after which a temporary file is nobody's any more."""
NAMED: Final = 5
"""How many of the sessions that a short id could mean are named."""
IDENTIFIER: Final = re.compile(r"[a-z0-9]{4,64}")


class State(StrEnum):
    """Where the session's latest run is."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProcess:
    """One process of a run: pid and start time (clock ticks since boot) tell it from any other."""

    role: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvidence:
    """A native control and what the agent answered about it; `asked` where it was remembered."""

    control: str
    observed: str
    source: str
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMark:
    """How a conversation's file stood when amux last looked.

    `digest` is the hex SHA-256 of the last bytes in front of `size` (`materializer.reading`);
    `beside` are the patterns of what belongs to the conversation.
    """

    path: str
    size: int = 0
    digest: str = ""
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Everything that a resume needs, as it was. An empty text means that there is none.

    `binding` and below it up to `tool_list` are frozen when the session is made. Times are in
    RFC 3339, UTC. `boot` is the kernel's boot id that `processes` belong to, and `home` the
    identity of the home that the latest run belongs to: a copied home loses it. `evidence` was
    asked before the agent started, `seen` in the conversation itself, at the latest run.
    """

    id: str
    provider: str
    agent_version: str = ""
    native_id: str = ""
    kind: str = "conversation"
    parent: str = ""
    principal: str = ""
    binding: str = ""
    protocol: str = ""
    protocol_version: str = ""
    protocol_digest: str = ""
    instructions: str = ""
    instructions_digest: str = ""
    tools: str = ""
    tool_list: str = ""
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    mode: str = "stream"
    cwd: str = ""
    user: str = ""
    private_home: str = ""
    state: State = State.STARTING
    run: str = ""
    marker: str = ""
    boot: str = ""
    home: str = ""
    processes: tuple[RunProcess, ...] = ()
    created: str = ""
    updated: str = ""
    started: str = ""
    ended: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    failure: str = ""
    warnings: tuple[str, ...] = ()
    evidence: tuple[RecordedEvidence, ...] = ()
    seen: tuple[Sighting, ...] = ()
    transcript: TranscriptMark | None = None

    @property
    def bound(self) -> bool:
        """Say whether the session has memory."""
        return bool(self.binding)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the record in `text`; raise ValueError saying what is wrong with it."""
        values = tomllib.loads(text)
        schema = values.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"its schema is {schema}, and this amux reads {SCHEMA}")
        known = {one.name for one in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown fields {', '.join(unknown)}")
        processes = tuple(RunProcess(**one) for one in values.pop("processes", ()))
        evidence = tuple(RecordedEvidence(**one) for one in values.pop("evidence", ()))
        seen = tuple(Sighting(**one) for one in values.pop("seen", ()))
        mark = values.pop("transcript", None)
        state = State(values.pop("state", ""))
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        record = cls(
            **plain,
            processes=processes,
            evidence=evidence,
            seen=seen,
            transcript=None if mark is None else _mark(mark),
            state=state,
        )
        record.check()
        return record

    def check(self) -> None:
        """Raise ValueError if a field holds another type than the record has."""
        for one in fields(self):
            value, wanted = getattr(self, one.name), _TYPES.get(str(one.type))
            if wanted is not None and not isinstance(value, wanted):
                raise ValueError(f"{one.name} is not of type {one.type}")
            if str(one.type) == "tuple[str, ...]" and not all(isinstance(v, str) for v in value):
                raise ValueError(f"{one.name} holds something else than texts")
        if any({type(one.pid), type(one.start)} != {int} for one in self.processes):
            raise ValueError("processes holds something else than numbers")
        if any({type(text) for text in astuple(one)} != {str} for one in self.evidence):
            raise ValueError("evidence holds something else than texts")
        for sighting in self.seen:
            turn, texts = sighting.turn, set(astuple(sighting)) - {sighting.turn}
            if type(turn) is not int or {type(text) for text in texts} != {str}:
                raise ValueError("seen holds something else than texts and a turn")

    def text(self) -> str:
        """Return the record as TOML that reads back to exactly this record."""
        values: dict[str, Any] = {"schema": SCHEMA}
        for name, value in asdict(self).items():
            if value is None or value == () or (value == "" and name not in _ALWAYS):
                continue
            values[name] = str(value) if name == "state" else _plain(value)
        readable = tomli_w.dumps(values, multiline_strings=True)
        # TOML readers turn CRLF into LF inside multi-line texts; frozen texts must be exact.
        return readable if tomllib.loads(readable) == values else tomli_w.dumps(values)


_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "int | None": (int, type(None)),
    "tuple[str, ...]": tuple,
}
_ALWAYS: Final = frozenset({"id", "provider", "binding", "state"})


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
    """The right to run a session. The run's shim may hold the same descriptor."""

    descriptor: int
    path: Path

    def close(self) -> None:
        """Let go; the session stays locked while the run's shim holds the descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def release(self) -> None:
        """Let go when nothing of the run is left: without the file nothing is to reconcile."""
        if self.descriptor >= 0:
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
            text = path.read_bytes().decode()
            record = SessionRecord.parse(text)
        except FileNotFoundError:
            raise SessionNotFound(
                f"there is no session {session}; `amux sessions list` shows them"
            ) from None
        except (ValueError, TypeError, OSError) as error:
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
        found = sorted(path.stem for path in self.folder.glob(f"{session}*.toml"))
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
        for path in sorted(self.folder.glob("*.toml")):
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
            if record.provider == provider and record.native_id == native_id:
                return record
        return None

    def lock(self, session: str, *, wait: float = LOCK_WAIT) -> SessionLock:
        """Take the right to run the session; raise SessionRunning if a run of it lives."""
        path = self._lock_path(session)
        until = time.monotonic() + wait
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
    def locked(self, session: str, *, wait: float = LOCK_WAIT) -> Iterator[None]:
        """Hold the session's lock for a while."""
        lock = self.lock(session, wait=wait)
        try:
            yield
        finally:
            lock.release()

    def copied(self, record: SessionRecord) -> bool:
        """Say whether the record came here with a copy of the home that its run belongs to."""
        return bool(record.home) and record.home != residence(self.home).identity

    def live(self, session: str) -> bool:
        """Say whether a run of the session lives."""
        try:
            descriptor = os.open(self._lock_path(session), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
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

    def unfinished(self) -> tuple[str, ...]:
        """Return the sessions with a lock file: those that run, and those whose run was cut off."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.lock")))

    def remove(self, session: str) -> None:
        """Forget a session that does not run."""
        with self.locked(session):
            self._path(session).unlink(missing_ok=True)
            sync_folder(self.folder)

    def _path(self, session: str) -> Path:
        if not IDENTIFIER.fullmatch(session):
            raise BadRequest(f"{session!r} is no session id")
        return self.folder / f"{session}.toml"

    def _lock_path(self, session: str) -> Path:
        return self._path(session).with_suffix(".lock")

    def _write(self, path: Path, record: SessionRecord) -> None:
        try:
            record.check()
            data = record.text().encode()
        except ValueError as error:
            raise BadRequest(f"session {record.id} cannot be recorded: {error}") from error
        replace_file(path, data)


def timestamp() -> str:
    """Return the current time in UTC, RFC 3339, milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"


def _mark(value: dict[str, Any]) -> TranscriptMark:
    """Read a transcript's mark; raise ValueError or TypeError for another shape."""
    mark = TranscriptMark(**{**value, "beside": tuple(value.get("beside", ()))})
    texts = {type(text) for text in (mark.path, mark.digest, *mark.beside)}
    if texts != {str} or type(mark.size) is not int:
        raise ValueError("transcript holds something else than a path, a size and a digest")
    return mark


def _plain(value: Any) -> Any:  # noqa: ANN401  # any field of the record
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
