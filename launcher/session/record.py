"""The session record: all that a resume needs, as one JSON object that reads back exactly."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from amux.providers.base import Mode, Sighting, Tools

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = 1
Value = TypeVar("Value")
BINDING: Final = re.compile(r"(global|principal:[\x21-\x7e]{1,128})?")


class Malformed(ValueError):
    """A text is not a session record."""


class State(StrEnum):
    """Where the session's latest run is."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


ACTIVE: Final = frozenset({State.STARTING, State.RUNNING})


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

    `digest` is the hex SHA-256 of the last bytes in front of `size` (`amux.materializer.reading`);
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
    identity of the home that the latest run belongs to: a copied home loses it. `conversations`
    holds every native id that was opened under the session's controls. `evidence` was asked
    before the agent started, `seen` in the conversation itself, at the latest run.
    """

    id: str
    provider: str
    agent_version: str = ""
    native_id: str = ""
    conversations: tuple[str, ...] = ()
    kind: str = "conversation"
    parent: str = ""
    principal: str = ""
    binding: str = ""
    protocol: str = ""
    protocol_version: str = ""
    protocol_digest: str = ""
    instructions: str = ""
    instructions_digest: str = ""
    subagent_instructions: str = ""
    subagent_instructions_digest: str = ""
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
    survivors: int = 0
    failure: str = ""
    warnings: tuple[str, ...] = ()
    evidence: tuple[RecordedEvidence, ...] = ()
    seen: tuple[Sighting, ...] = ()
    transcript: TranscriptMark | None = None

    @property
    def bound(self) -> bool:
        """Say whether the session has memory."""
        return bool(self.binding)

    @property
    def active(self) -> bool:
        """Say whether the latest run is said to be under way."""
        return self.state in ACTIVE

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the record in `text`; raise Malformed saying what is wrong with it."""
        try:
            values = json.loads(text)
        except RecursionError as error:
            raise Malformed("it is nested too deeply") from error
        if not isinstance(values, dict):
            raise Malformed("it is not a JSON object")
        schema = values.pop("schema", None)
        if type(schema) is not int or schema != SCHEMA:
            raise Malformed(f"its schema is {schema!r}, and this amux reads {SCHEMA}")
        return _checked(cls, values)

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values, every field, the state as its word."""
        return {**asdict(self), "state": self.state.value}

    def text(self) -> str:
        """Return the record as JSON that reads back to exactly this record.

        Fields that hold nothing are left out. Raises Malformed for a record that is not one.
        """
        values = {
            name: value for name, value in self.as_json().items() if value not in ("", (), None)
        }
        try:
            text = json.dumps({"schema": SCHEMA, **values}, ensure_ascii=False, indent=1)
            text.encode()
        except UnicodeEncodeError:  # a path that is not UTF-8; JSON can escape it
            text = json.dumps({"schema": SCHEMA, **values}, indent=1)
        if self.parse(text) != self:
            raise Malformed("it would not read back as it is")
        return text + "\n"


def timestamp() -> str:
    """Return the current time in UTC, RFC 3339, milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"


_NESTED: Final[Mapping[str, type[Any]]] = {
    "processes": RunProcess,
    "evidence": RecordedEvidence,
    "seen": Sighting,
}
_WORDS: Final[Mapping[str, type[StrEnum]]] = {"state": State, "mode": Mode, "tools": Tools}
_NUMBERS: Final = frozenset({"pid", "start", "turn", "size", "survivors"})
_MAYBE_NUMBERS: Final = frozenset({"exit_code", "exit_signal"})
_TEXTS: Final = frozenset({"command", "arguments", "conversations", "warnings", "beside"})


def _checked(kind: type[Value], values: object) -> Value:
    """Build a value of the record from JSON; raise Malformed naming the field that is wrong."""
    if not isinstance(values, dict):
        raise Malformed(f"a {kind.__name__} in it is not a JSON object")
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # dataclasses only
    if unknown := sorted(values.keys() - known):
        raise Malformed(f"unknown fields {', '.join(map(str, unknown))}")
    try:
        return kind(**{name: _field(name, value) for name, value in values.items()})
    except TypeError as error:
        raise Malformed(f"a {kind.__name__} in it lacks a field: {error}") from error


def _field(name: str, value: object) -> object:
    if name == "transcript":
        return None if value is None else _checked(TranscriptMark, value)
    if name in _NESTED or name in _TEXTS:
        return _several(name, value)
    if name in _NUMBERS or name in _MAYBE_NUMBERS:
        if type(value) is int or (value is None and name in _MAYBE_NUMBERS):
            return value
        raise Malformed(f"{name} is not a number")
    if not isinstance(value, str):
        raise Malformed(f"{name} holds something else than text")
    return _word(name, value)


def _several(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise Malformed(f"{name} is not a list")
    if name in _NESTED:
        return tuple(_checked(_NESTED[name], one) for one in value)
    if not all(isinstance(one, str) for one in value):
        raise Malformed(f"{name} holds something else than texts")
    return tuple(value)


def _word(name: str, value: str) -> str:
    """Check a text that may be one of a few; the empty one means that there is none."""
    if name in _WORDS and (value or name == "state"):
        words = _WORDS[name]
        if value not in tuple(words):
            raise Malformed(f"{name} is {value!r}, not one of {', '.join(words)}")
        return words(value) if words is State else value
    if name == "binding" and not BINDING.fullmatch(value):
        raise Malformed(f"binding is {value!r}, not global or principal:ID")
    return value
