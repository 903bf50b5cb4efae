"""Which memory tools Codex really loaded: an allow-list can drop a server without a word."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from amux.providers.base import Evidence, Tools
from amux.providers.codex import flags, version
from amux.providers.codex.effective_config import has_only_our_server, objects
from amux.providers.errors import RequestRefused, Silence
from amux.providers.release import number

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, Grant, JsonObject
    from amux.providers.codex.app_server import Answer, Call

Seen: TypeAlias = "tuple[tuple[Evidence, ...], tuple[str, ...]]"

CONTROL: Final = "memory tools"
STATUS: Final = "mcpServer/startupStatus/updated"
NONE: Final[Seen] = ((), ())


@dataclass(frozen=True, slots=True)
class Question:
    """How to learn which tools a thread has: `calls` to send, then `read` with their answers.

    A list of one server's tools is exact. A version that lists all servers starts each of them
    for it, so with other servers configured the launch hears from the thread whether ours is up.
    """

    native_id: str
    asked: bool
    listed: bool

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the requests to send."""
        return (_listing(self.native_id),) if self.listed else ()

    def read(self, channel: Channel, answers: list[Answer]) -> Seen:
        """Return evidence and warnings. The other requests of the handshake are answered by now."""
        if not self.asked:
            return NONE
        return _listed(answers[0]) if self.listed else _heard(channel, self.native_id)


def choose_question(
    request: AgentRequest, grant: Grant, configuration: JsonObject, native_id: str
) -> Question:
    """Choose how to ask, by the version and the effective configuration."""
    one = number(request.version) >= version.LISTS_ONE_SERVER
    asked = grant.tools is Tools.MCP
    return Question(native_id, asked, asked and (one or has_only_our_server(configuration)))


def _listing(native_id: str) -> Call:
    parameters: JsonObject = {
        "threadId": native_id,
        "serverName": flags.SERVER,
        "detail": "toolsAndAuthOnly",
    }
    return "mcpServerStatus/list", parameters


def _listed(answer: Answer) -> Seen:
    """Return which memory tools really loaded, and a warning where some did not."""
    loaded: set[str] = set()
    if not isinstance(answer, RequestRefused):
        for entry in objects(answer.get("data")):
            if entry.get("name") == flags.SERVER:
                loaded |= set(entry.get("tools") or {})
    missing = [name for name in flags.TOOL_NAMES if name not in loaded]
    seen = ", ".join(name for name in flags.TOOL_NAMES if name in loaded) or "none"
    evidence = Evidence(control="memory tools", observed=seen, source="mcpServerStatus/list")
    if not missing:
        return (evidence,), ()
    why = (
        f"Codex says: {answer.answer}"
        if isinstance(answer, RequestRefused)
        else "look for an allow-list of MCP servers in requirements.toml"
    )
    return (evidence,), (f"Codex did not load {', '.join(missing)} of the memory server; {why}",)


def _heard(channel: Channel, native_id: str) -> Seen:
    """Return what the thread told of our server; every message is put back."""
    messages: list[JsonObject] = []
    told = None
    with contextlib.suppress(Silence):
        while told is None:
            messages.append(channel.receive(deadline=0.0))
            parameters = messages[-1].get("params") or {}
            ours = (
                messages[-1].get("method") == STATUS
                and parameters.get("name") == flags.SERVER
                and parameters.get("threadId") in {native_id, None}
            )
            if ours and parameters.get("status") != "starting":
                told = str(parameters.get("status"))
    channel.put_back(messages)
    observed = f"server {told}" if told else "none"
    evidence = Evidence(control=CONTROL, observed=observed, source=STATUS)
    if told == "ready":
        return (evidence,), ()
    warning = (
        "Codex did not start the memory server for this thread; look for an allow-list of MCP "
        "servers in requirements.toml"
    )
    return (evidence,), (warning,)
