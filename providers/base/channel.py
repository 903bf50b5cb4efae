"""How a provider talks with a running agent: the channel that it is handed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amux.providers.errors import RequestRefused

JsonObject: TypeAlias = dict[str, Any]


class Channel(Protocol):
    """A structured conversation with a running agent. Deadlines are in seconds from now."""

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        """Send a JSON-RPC request and return its result; raise RequestRefused for an error."""
        ...

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a JSON-RPC notification."""
        ...

    def send(self, message: JsonObject) -> None:
        """Send one JSON line."""
        ...

    def receive(self, *, deadline: float) -> JsonObject:
        """Return the next JSON line that is not an answer to a request."""
        ...

    def put_back(self, messages: Sequence[JsonObject]) -> None:
        """Give back messages that were received and are somebody else's; they come next again."""
        ...


@runtime_checkable
class PipelinedChannel(Channel, Protocol):
    """A channel that can have several requests under way."""

    def request_all(
        self, calls: Sequence[tuple[str, JsonObject]], *, deadline: float
    ) -> tuple[JsonObject | RequestRefused, ...]:
        """Send every request at once; return each result, or its refusal, in the same order."""
        ...
