"""What a scripted model is asked and what it answers, the same for each API.

A script sees what the agent sent, never who sent it, so it can decide as a model would: from the
instructions, the tools offered and the tool results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JsonObject: TypeAlias = dict[str, Any]

_REVISION: Final = re.compile(r'\\?"revision\\?":\s*\\?"([0-9a-f]{64}|absent)')


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """Answer with a call of a tool that was offered."""

    tool: ToolOffer
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Compaction:
    """Answer a remote compaction of the Responses API, which replaces the history so far."""

    content: str


Answer: TypeAlias = "Say | Call | Compaction"


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as the agent offered it; `namespace` where the agent groups tools."""

    name: str
    namespace: str | None = None
    description: str = ""
    freeform: bool = False

    @property
    def full_name(self) -> str:
        """Return namespace and name as one string."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call brought back, as the model is told."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model request, read the same way for each API.

    `system` is everything with more authority than the user: base and developer instructions.
    `received` is `time.monotonic()` at arrival.
    """

    api: str
    path: str
    headers: Mapping[str, str]
    body: JsonObject
    system: str
    user: tuple[str, ...]
    tools: tuple[ToolOffer, ...]
    results: tuple[ToolResult, ...]
    received: float

    def tool(self, *endings: str) -> ToolOffer | None:
        """Return the first offered tool whose name ends with one of `endings`."""
        for ending in endings:
            for offer in self.tools:
                if offer.name.endswith(ending):
                    return offer
        return None


Script: TypeAlias = Callable[[Turn], "Answer | tuple[Answer, ...]"]


class ModelApi:
    """Reads requests and writes answers of one HTTP API."""

    name: str
    suffix: str

    def read(self, path: str, headers: Mapping[str, str], body: JsonObject) -> Turn:
        """Read a request body into a Turn."""
        raise NotImplementedError

    def events(self, answers: tuple[Answer, ...], turn: Turn) -> Iterable[tuple[str, JsonObject]]:
        """Yield the server-sent events (name, data) that carry the answers."""
        raise NotImplementedError


def text_of(content: object) -> str:
    """Join the text parts of a content value that is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") or "" for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    return ""


def revision_in(text: str) -> str | None:
    """Return the last revision that a tool result names."""
    found = _REVISION.findall(text)
    return found[-1] if found else None
