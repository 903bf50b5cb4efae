"""The server beside Codex's own screen: confirmed before it, and each of its threads after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amux.providers.base import Confirmed
from amux.providers.codex import (
    effective_config,
    flags,
    handshake,
    rollout,
    subagents,
    tools,
    version,
)
from amux.providers.codex.app_server import ANSWER_SECONDS, ask_all
from amux.providers.errors import NotConfirmed, RequestRefused
from amux.providers.release import number

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, Grant, JsonObject, LaunchPlan


FOREIGN: Final = (
    "which did not begin in this session; what an earlier memory put into it stays there, and the "
    "memory protocol may not be in it"
)


def control_server(
    channel: Channel, request: AgentRequest, grant: Grant, plan: LaunchPlan
) -> Confirmed:
    """Confirm the server beside a screen before a person sees the screen."""
    instructions, own = plan.instructions or "", plan.subagent_instructions
    opened = handshake.open_agent(channel, request)
    another = opened.another(request)
    if another is not None:
        return another
    answer, off = handshake.read_memory_off(channel, request)
    if effective_config.developer_instructions(answer) != instructions:
        raise NotConfirmed(
            "Codex's screen would not get the memory protocol",
            answer="developer_instructions is another text than amux passed",
        )
    if (
        own is not None
        and effective_config.value_at(answer.get("config"), flags.SUBAGENT_TEXT) != own
    ):
        raise NotConfirmed(
            "the sub-agents of Codex's screen would not get the memory protocol",
            answer=f"{flags.SUBAGENT_TEXT} is another text than amux passed",
        )
    return Confirmed(
        evidence=(*opened.evidence, *off, *subagents.evidence(answer, grant, own, "config/read")),
        instructions=instructions,
        subagent_instructions=own,
        version=opened.version,
    )


def settle_started(
    channel: Channel,
    message: JsonObject,
    request: AgentRequest,
    grant: Grant,
    settled: frozenset[str],
) -> Confirmed | None:
    """Settle the thread that a `thread/started` tells of: new ones, and forks."""
    if message.get("method") != "thread/started":
        return None
    thread = (message.get("params") or {}).get("thread") or {}
    native_id, origin = thread.get("id"), thread.get("forkedFromId")
    if not isinstance(native_id, str) or native_id in settled:
        return None
    found = _settle(channel, request, grant, native_id)
    if origin is None or origin in settled | _own(request):
        return found
    text = f"conversation {native_id} was forked on the screen from {origin}, {FOREIGN}"
    return replace(found, foreign=True, warnings=(*found.warnings, text))


def settle_loaded(
    channel: Channel, request: AgentRequest, grant: Grant, settled: frozenset[str]
) -> Confirmed | None:
    """Settle a loaded thread that nothing told of: one that was resumed on the screen."""
    answer = channel.request("thread/loaded/list", {}, deadline=ANSWER_SECONDS)
    for native_id in answer.get("data") or []:
        if isinstance(native_id, str) and native_id not in settled:
            return _settle_unheard(channel, request, grant, native_id)
    return None


def _settle_unheard(
    channel: Channel, request: AgentRequest, grant: Grant, native_id: str
) -> Confirmed:
    """Settle a thread by its age: a new one may be listed before a message tells of it.

    The stored memory mode of an older one of others is theirs, and is left as it is: nothing of
    native memory is on in this server.
    """
    answer = channel.request("thread/read", {"threadId": native_id}, deadline=ANSWER_SECONDS)
    thread = answer.get("thread") or {}
    if thread.get("parentThreadId"):
        return Confirmed(native_id=native_id)  # a sub-agent has its parent's settings
    if native_id in _own(request) or _made(thread, native_id) > request.began:
        return _settle(channel, request, grant, native_id)
    text = f"conversation {native_id} was resumed on the screen, {FOREIGN}"
    return Confirmed(native_id=native_id, foreign=True, warnings=(text,))


def _own(request: AgentRequest) -> frozenset[str]:
    """Return the session's own threads, and the one that it resumes or forks."""
    named = frozenset() if request.resume is None else frozenset((request.resume.native_id,))
    return request.conversations | named


def _made(thread: JsonObject, native_id: str) -> float:
    """Return when a thread was made; Codex names it in whole seconds where its id does not tell."""
    made = thread.get("createdAt")
    return rollout.creation_time(native_id, float(made) + 1 if isinstance(made, int) else 0.0)


def _settle(channel: Channel, request: AgentRequest, grant: Grant, native_id: str) -> Confirmed:
    asking = tools.choose_question(request, grant, _configuration(channel, request), native_id)
    if not asking.listed:
        asking = replace(asking, asked=False)  # the thread tells the screen, not us
    answer, *answers = ask_all(channel, (handshake.memory_mode_request(native_id), *asking.calls))
    if isinstance(answer, RequestRefused) and "ephemeral" in answer.answer:
        # A side conversation is never stored, so it has no stored mode either.
        return Confirmed(native_id=native_id)
    mode = handshake.memory_mode_evidence(request, answer)
    seen, warnings = asking.read(channel, answers)
    return Confirmed(evidence=(mode, *seen), native_id=native_id, warnings=warnings)


def _configuration(channel: Channel, request: AgentRequest) -> JsonObject:
    if number(request.version) >= version.LISTS_ONE_SERVER:
        return {}  # it is not needed
    return handshake.read_config(channel, request)
