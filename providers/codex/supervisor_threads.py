"""Threads that a supervisor opens by requests of its own: refused, or settled once open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.providers.base import Confirmed
from amux.providers.codex import handshake, roles, threads
from amux.providers.codex.app_server import ask_all
from amux.providers.errors import BadArguments, RequestRefused

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, JsonObject


def refuse_foreign_thread(
    channel: Channel, method: str, parameters: JsonObject, known: frozenset[str]
) -> None:
    """Let a supervisor go on with threads of this session, and with their sub-agents, only.

    Any other may hold what native memory put into it, lacks the protocol, and has a stored memory
    mode that is not amux's to change. Raises BadArguments.
    """
    native_id = threads.continued_thread(method, parameters)
    if native_id is None or native_id in known:
        return
    (answer,) = ask_all(channel, (("thread/read", {"threadId": native_id}),))
    if not isinstance(answer, RequestRefused):
        parent = (answer.get("thread") or {}).get("parentThreadId")
        if parent in known:
            return
    raise BadArguments(
        f"conversation {native_id} did not begin in this session, so what Codex's own memory put "
        "into it would come along, and the memory protocol would not be in it; go on with it by "
        f"`amux launch codex -- resume {native_id}`, or start a new thread"
    )


def settle_opened(
    channel: Channel, method: str, result: JsonObject, request: AgentRequest
) -> Confirmed | None:
    """Disable memory mode for a thread that a supervisor's own request opened."""
    thread = result.get("thread") or {}
    if method not in threads.OPENING:
        return None
    native_id = str(thread.get("id"))
    if thread.get("ephemeral") or thread.get("parentThreadId"):
        return Confirmed(native_id=native_id)
    evidence = handshake.disable_memory_mode(channel, request, native_id)
    warnings = roles.unread_warnings(request.version, result.get("cwd"), request.cwd)
    return Confirmed(evidence=(evidence,), native_id=native_id, warnings=warnings)
