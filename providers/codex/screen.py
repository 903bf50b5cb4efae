"""The server beside Codex's own screen: confirmed before it, and each of its threads after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from providers.base import Confirmed
from providers.codex import config, handshake, tools, version
from providers.codex.asking import ANSWER_SECONDS, ask_all
from providers.errors import NotConfirmed, RequestRefused

if TYPE_CHECKING:
    from providers.base import AgentRequest, Channel, Grant, JsonObject


def control_server(channel: Channel, request: AgentRequest, instructions: str) -> Confirmed:
    """Confirm the server beside a screen before a person sees the screen."""
    evidence = handshake.open_agent(channel, request)
    answer, off = handshake.read_off(channel, request)
    if config.developer_instructions(answer) != instructions:
        raise NotConfirmed(
            "Codex's screen would not get the memory protocol",
            answer="developer_instructions is another text than amux passed",
        )
    return Confirmed(evidence=(*evidence, *off), instructions=instructions)


def settle_started(
    channel: Channel, message: JsonObject, request: AgentRequest, grant: Grant
) -> Confirmed | None:
    """Settle the thread that a `thread/started` tells of: new ones, and forks."""
    if message.get("method") != "thread/started":
        return None
    native_id = ((message.get("params") or {}).get("thread") or {}).get("id")
    return _settle(channel, request, grant, native_id) if isinstance(native_id, str) else None


def settle_loaded(
    channel: Channel, request: AgentRequest, grant: Grant, settled: frozenset[str]
) -> Confirmed | None:
    """Settle a loaded thread that nothing told of: one that was resumed on the screen."""
    answer = channel.request("thread/loaded/list", {}, deadline=ANSWER_SECONDS)
    for native_id in answer.get("data") or []:
        if isinstance(native_id, str) and native_id not in settled:
            return _settle_resumed(channel, request, grant, native_id)
    return None


def _settle_resumed(
    channel: Channel, request: AgentRequest, grant: Grant, native_id: str
) -> Confirmed:
    answer = channel.request("thread/read", {"threadId": native_id}, deadline=ANSWER_SECONDS)
    thread = answer.get("thread") or {}
    if thread.get("parentThreadId"):
        return Confirmed(native_id=native_id)  # a sub-agent has its parent's settings
    found = _settle(channel, request, grant, native_id)
    if request.resume is not None and native_id == request.resume.native_id:
        return found
    foreign = (
        f"conversation {native_id} was resumed on the screen; what an earlier memory put into it "
        "stays there"
    )
    return replace(found, warnings=(*found.warnings, foreign))


def _settle(channel: Channel, request: AgentRequest, grant: Grant, native_id: str) -> Confirmed:
    asking = tools.question(request, grant, _configuration(channel, request), native_id)
    if not asking.listed:
        asking = replace(asking, asked=False)  # the thread tells the screen, not us
    answer, *answers = ask_all(channel, (handshake.memory_mode(native_id), *asking.calls))
    if isinstance(answer, RequestRefused) and "ephemeral" in answer.answer:
        # A side conversation is never stored, so it has no stored mode either.
        return Confirmed(native_id=native_id)
    mode = handshake.mode_evidence(request, answer)
    seen, warnings = asking.read(channel, answers)
    return Confirmed(evidence=(mode, *seen), native_id=native_id, warnings=warnings)


def _configuration(channel: Channel, request: AgentRequest) -> JsonObject:
    if version.number(request.version) >= version.LISTS_ONE_SERVER:
        return {}  # it is not needed
    return handshake.read_config(channel, request)
