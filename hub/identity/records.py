"""One file of records by id: read when it changed, written under a lock.

The file is one JSON object. Where it is large a change is a line behind it, `{id: record}` or
`{id: null}`, so that it costs what it changes; as many lines as records, and it is written anew.
The Hub reads while a local `amux` command writes: a rename gives the file a new inode, and of a
file that grew only the rest is read, so that a change shows at the next call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from amux.hub.atomicfile import locked, replace_file
from amux.hub.errors import IdentityRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Record: TypeAlias = dict[str, object]
Item = TypeVar("Item")
Stamp: TypeAlias = tuple[int, int, int, int]

SCHEMA: Final = 1
LOCK_FILE: Final = ".lock"
APPENDED_FROM: Final = 256
"""Records from which on changes are appended."""


class Changes(dict[str, Record]):
    """The records to change; it knows which were."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        super().__init__(records)
        self.changed: set[str] = set()

    def put(self, key: str, record: Record) -> None:
        """Set one record."""
        self[key] = record
        self.changed.add(key)

    def drop(self, key: str) -> bool:
        """Delete one record; False when there is none."""
        if self.pop(key, None) is None:
            return False
        self.changed.add(key)
        return True


@dataclass(frozen=True, slots=True)
class _State(Generic[Item]):
    """The records as they are being read, and what they were parsed to."""

    records: dict[str, Record]
    items: dict[str, Item]


class RecordFile(Generic[Item]):
    """Keep the parsed contents of one file, and change it durably; safe for many threads."""

    def __init__(self, path: Path, name: str, parse: Callable[[str, Record], Item | None]) -> None:
        self.path = path
        self._name = name
        self._parse = parse
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._stamp: Stamp | None = None
        self._records: dict[str, Record] = {}
        self._items: dict[str, Item] = {}
        self._read_to = 0
        self._lines = 0
        self._before = b""

    def current(self) -> Mapping[str, Item]:
        """Return the parsed records, read anew when the file changed.

        Raises IdentityRefused when the file cannot be read or is damaged: nothing of an
        older state is used then, since a revocation may be what is missing.
        """
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._refresh(stamp)
            return self._items

    @contextlib.contextmanager
    def writer(self) -> Iterator[Changes]:
        """Yield the records to change; they are written when the block ends without error."""
        with locked(self.path.parent / LOCK_FILE):
            self.current()
            changes = Changes(self._records)
            yield changes
            try:
                self._write(changes)
            except OSError as error:
                raise IdentityRefused(f"cannot write {self.path}: {error.strerror}") from error

    def _write(self, changes: Changes) -> None:
        lines = self._lines + len(changes.changed)
        if len(changes) < APPENDED_FROM or lines > len(changes):
            tree = {"schema": SCHEMA, self._name: changes}
            text = json.dumps(tree, indent=1, ensure_ascii=False)
            replace_file(self.path, text.encode() + b"\n")
            return
        rest = "".join(
            json.dumps({key: changes.get(key)}, ensure_ascii=False) + "\n"
            for key in sorted(changes.changed)
        )
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # What a killed writer left behind the last whole line goes.
            os.ftruncate(descriptor, self._read_to)
            try:
                _append(descriptor, rest.encode(), self._read_to)
            except OSError:
                os.ftruncate(descriptor, self._read_to)
                raise
        finally:
            os.close(descriptor)

    def _look(self) -> Stamp | None:
        try:
            info = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IdentityRefused(f"cannot look at {self.path}: {error.strerror}") from error
        return info.st_ino, info.st_mtime_ns, info.st_size, info.st_ctime_ns

    def _refresh(self, stamp: Stamp | None) -> None:
        """Read what is new, or everything; of a damaged file nothing is kept."""
        grew = self._stamp is not None and stamp is not None and stamp[0] == self._stamp[0]
        try:
            data = self._bytes()
            if data is None:
                self._forget()
                return
            # New ones, since others look at the old: changes show as a whole.
            state = _State(dict(self._records), dict(self._items))
            if not (grew and self._before and self._goes_on(data)):
                self._forget()
                state = _State({}, {})
                self._take_whole(data, state)
            self._take_lines(data, state)
        except IdentityRefused:
            self._forget()
            raise
        self._records, self._items = state.records, state.items
        self._before = _digest(data[: self._read_to])
        self._stamp = stamp

    def _goes_on(self, data: bytes) -> bool:
        """Say whether all that was read still stands: another file may have the same number."""
        return len(data) >= self._read_to and _digest(data[: self._read_to]) == self._before

    def _bytes(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o022:
                    raise IdentityRefused(f"{self.path} is writable for group or others")
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IdentityRefused(f"cannot read {self.path}: {error.strerror}") from error

    def _take_whole(self, data: bytes, state: _State[Item]) -> None:
        """Read the object at the beginning."""
        try:
            text = data.decode()
            tree, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
        except ValueError as error:
            raise IdentityRefused(f"{self.path} is damaged: {error}") from error
        records = tree.get(self._name) if isinstance(tree, dict) else None
        if not isinstance(records, dict) or tree.get("schema") != SCHEMA:
            raise IdentityRefused(f"{self.path} has no {self._name} of schema {SCHEMA}")
        self._apply(records, state)
        size = len(text[:end].encode())
        line_end = data.find(b"\n", size)
        self._read_to = len(data) if line_end < 0 else line_end + 1
        if data[size : self._read_to].strip():
            raise IdentityRefused(f"{self.path} is damaged behind its records")

    def _take_lines(self, data: bytes, state: _State[Item]) -> None:
        """Apply the changes behind it, as far as their lines are whole."""
        whole = data.rfind(b"\n") + 1
        try:
            for line in data[self._read_to : whole].splitlines():
                change = json.loads(line) if line.strip() else {}
                if not isinstance(change, dict):
                    raise IdentityRefused(f"{self.path} holds a change that is not an object")
                self._apply(change, state)
                self._lines += 1
        except ValueError as error:
            raise IdentityRefused(f"{self.path} is damaged: {error}") from error
        self._read_to = max(self._read_to, whole)

    def _apply(self, change: Mapping[str, object], state: _State[Item]) -> None:
        for key, record in change.items():
            state.records.pop(key, None)
            state.items.pop(key, None)
            if record is None:
                continue
            if not isinstance(record, dict):
                raise IdentityRefused(f"{self.path} holds a record that is not an object")
            state.records[key] = record
            item = self._parse(key, record)
            if item is not None:
                state.items[key] = item


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _append(descriptor: int, data: bytes, at: int) -> None:
    while data:
        size = os.pwrite(descriptor, data, at)
        data, at = data[size:], at + size
    os.fsync(descriptor)


def text(record: Record, key: str) -> str:
    """Return a string field. Raises IdentityRefused."""
    value = record.get(key)
    if not isinstance(value, str):
        raise IdentityRefused(f"a record has no text {key!r}")
    return value


def optional_text(record: Record, key: str) -> str | None:
    """Return a string field, or None when it is missing. Raises IdentityRefused."""
    return None if record.get(key) is None else text(record, key)


def number(record: Record, key: str) -> int:
    """Return an integer field. Raises IdentityRefused."""
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise IdentityRefused(f"a record has no number {key!r}")
    return value


def optional_number(record: Record, key: str) -> int | None:
    """Return an integer field, or None when it is missing. Raises IdentityRefused."""
    return None if record.get(key) is None else number(record, key)


def texts(record: Record, key: str) -> tuple[str, ...]:
    """Return a list of strings. Raises IdentityRefused."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise IdentityRefused(f"a record has no list of texts {key!r}")
    return tuple(value)
