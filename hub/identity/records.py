"""One JSON file of records by id: re-read when it changed, written as a whole under a lock.

The Hub reads while a local `amux` command writes; a rename gives the file a new inode, so
a change shows at the next call without any message between the two processes.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from hub.atomicfile import locked, replace_file
from hub.errors import IdentityRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Record: TypeAlias = dict[str, object]
Parsed = TypeVar("Parsed")
Stamp: TypeAlias = tuple[int, int, int, int]

SCHEMA: Final = 1
LOCK_FILE: Final = ".lock"


class RecordFile(Generic[Parsed]):
    """Keep the parsed contents of one file, and change it durably."""

    def __init__(
        self, path: Path, name: str, parse: Callable[[Mapping[str, Record]], Parsed]
    ) -> None:
        self.path = path
        self._name = name
        self._parse = parse
        self._stamp: Stamp | None = None
        self._parsed = parse({})

    def current(self) -> Parsed:
        """Return the parsed records, read anew when the file changed.

        Raises IdentityRefused when the file cannot be read or is damaged: nothing of an
        older state is used then, since a revocation may be what is missing.
        """
        stamp = self._look()
        if stamp != self._stamp:
            self._parsed = self._parse(self._read())
            self._stamp = stamp
        return self._parsed

    @contextlib.contextmanager
    def writer(self) -> Iterator[dict[str, Record]]:
        """Yield the records to change; they are written when the block ends without error."""
        with locked(self.path.parent / LOCK_FILE):
            records = self._read()
            yield records
            text = json.dumps({"schema": SCHEMA, self._name: records}, indent=1, ensure_ascii=False)
            try:
                replace_file(self.path, text.encode() + b"\n")
            except OSError as error:
                raise IdentityRefused(f"cannot write {self.path}: {error.strerror}") from error

    def _look(self) -> Stamp | None:
        try:
            info = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IdentityRefused(f"cannot look at {self.path}: {error.strerror}") from error
        return info.st_ino, info.st_mtime_ns, info.st_size, info.st_ctime_ns

    def _read(self) -> dict[str, Record]:
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o022:
                    raise IdentityRefused(f"{self.path} is writable for group or others")
                tree = json.loads(file.read())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise IdentityRefused(f"cannot read {self.path}: {error.strerror}") from error
        except ValueError as error:
            raise IdentityRefused(f"{self.path} is damaged: {error}") from error
        records = tree.get(self._name) if isinstance(tree, dict) else None
        if not isinstance(records, dict) or tree.get("schema") != SCHEMA:
            raise IdentityRefused(f"{self.path} has no {self._name} of schema {SCHEMA}")
        if not all(isinstance(record, dict) for record in records.values()):
            raise IdentityRefused(f"{self.path} holds a record that is not an object")
        return records


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
