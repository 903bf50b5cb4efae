"""The conversation that opens a Codex thread and confirms each control of a bound launch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from providers.base import Confirmed, Evidence, PipelinedChannel, Tools
from providers.codex import config, flags, threads
from providers.errors import NotConfirmed, RequestRefused, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from providers.base import AgentRequest, Channel, Grant, JsonObject

Call: TypeAlias = "tuple[str, JsonObject]"
CLIENT: Final = {"name": "amux", "title": "amux", "version": "0.1.0"}
THREAD_CONFIG: Final = "thread-config"
BYPASS: Final = "--dangerously-bypass-hook-trust"
HOOKS_THAT_RUN: Final = frozenset({"trusted", "managed", None})
HOOKS_WITHOUT_TRUST: Final = frozenset({"untrusted", "modified"})
ANSWER_SECONDS: Final = 20.0
START_SECONDS: Final = 60.0
"""A thread waits for its MCP servers, the user's own included."""


def open_agent(channel: Channel, request: AgentRequest) -> tuple[Evidence, ...]:
    """Initialize, and check that the agent serves the home that was planned for it."""
    parameters: JsonObject = {"clientInfo": CLIENT, "capabilities": {"experimentalApi": True}}
    answer = channel.request("initialize", parameters, deadline=ANSWER_SECONDS)
    channel.notify("initialized")
    home = answer.get("codexHome")
    planned = planned_home(request)
    if home != planned:
        raise NotConfirmed(
            f"Codex {request.version} does not use the home planned for it, {planned}",
            answer=f"codexHome = {json.dumps(home)}",
        )
    return (Evidence(control="codexHome", observed=str(home), source="initialize"),)


def planned_home(request: AgentRequest) -> str:
    """Return the Codex home that the environment asks for. An empty value means unset."""
    return request.environment.get("CODEX_HOME") or f"{request.home.rstrip('/')}/.codex"


def read_config(channel: Channel, request: AgentRequest) -> JsonObject:
    """Return the effective configuration for the launch's folder, layers included."""
    parameters: JsonObject = {"includeLayers": True, "cwd": request.cwd}
    try:
        return channel.request("config/read", parameters, deadline=ANSWER_SECONDS)
    except RequestRefused as error:
        raise NotConfirmed(
            "Codex cannot read its own configuration; mend the file that it names",
            answer=error.answer,
        ) from error


def config_warnings(answer: JsonObject, grant: Grant) -> tuple[str, ...]:
    """Return what the configuration does to the launch, apart from native memory."""
    found = config.role_warnings(answer)
    if grant.tools is Tools.MCP:
        found += config.server_warnings(answer, flags.server_entry(grant))
        found += config.namespace_warnings(answer)
    return found


def merged(answer: JsonObject, grant: Grant) -> str:
    """Return the frozen text of a resume, or the configured text and the protocol."""
    if grant.instructions is not None:
        return grant.instructions
    return config.merge(config.developer_instructions(answer), grant.protocol)


def _hook_list(request: AgentRequest) -> Call:
    return "hooks/list", {"cwds": [request.cwd]}


def _hook_warnings(request: AgentRequest, answer: JsonObject | RequestRefused) -> tuple[str, ...]:
    """Name each hook that is active for the launch: a hook can keep a memory of its own.

    A command's words after the first are left out, since they may hold a credential.
    """
    if isinstance(answer, RequestRefused):
        return (f"Codex {request.version} does not list its hooks; they may keep other memories",)
    found: list[str] = []
    active = HOOKS_THAT_RUN | (HOOKS_WITHOUT_TRUST if BYPASS in request.arguments else set())
    for place in config.objects(answer.get("data")):
        for hook in config.objects(place.get("hooks")):
            if hook.get("enabled") and hook.get("trustStatus") in active:
                program = str(hook.get("command") or hook.get("handlerType")).split(" ")[0]
                found.append(
                    f"hook {hook.get('eventName')} ({program}, {hook.get('trustStatus')}) of "
                    f"{hook.get('sourcePath') or hook.get('pluginId') or hook.get('source')} is "
                    "active and may keep a memory of its own; --without-hooks stops all hooks"
                )
    return tuple(found)


def open_thread(channel: Channel, request: AgentRequest, instructions: str | None) -> str:
    """Start, resume or fork the thread and return its id."""
    parameters: JsonObject = {"cwd": request.cwd}
    given = request.options.get(THREAD_CONFIG)
    if given is not None:
        parameters["config"] = threads.read_config(given, bound=instructions is not None)
    if instructions is not None:
        parameters["developerInstructions"] = instructions
    if request.resume is None:
        method = "thread/start"
    else:
        method = "thread/fork" if request.resume.fork else "thread/resume"
        parameters |= {"threadId": request.resume.native_id, "excludeTurns": True}
    answer = channel.request(method, parameters, deadline=START_SECONDS)
    thread = answer.get("thread")
    native_id = thread.get("id") if isinstance(thread, dict) else None
    if not isinstance(native_id, str):
        raise NotConfirmed(f"Codex named no thread in {method}", answer=json.dumps(answer)[:500])
    return native_id


def disable_memory_mode(channel: Channel, request: AgentRequest, native_id: str) -> Evidence:
    """Store in Codex's own state that this thread gives no native memories."""
    (answer,) = _ask_all(channel, (_memory_mode(native_id),))
    return _mode_evidence(request, answer)


def _memory_mode(native_id: str) -> Call:
    return threads.MEMORY_MODE, {"threadId": native_id, "mode": "disabled"}


def _mode_evidence(request: AgentRequest, answer: JsonObject | RequestRefused) -> Evidence:
    if isinstance(answer, RequestRefused):
        if "unknown variant" in answer.answer:
            raise UnsupportedVersion(
                f"Codex {request.version} has no thread/memoryMode/set, so its native memory "
                "cannot be switched off for a thread; install a newer one"
            ) from answer
        raise NotConfirmed(
            f"Codex {request.version} refused to switch native memory off for this thread",
            answer=answer.answer,
        ) from answer
    return Evidence(control="memoryMode", observed="disabled", source=threads.MEMORY_MODE)


def _tool_list(native_id: str) -> Call:
    parameters: JsonObject = {
        "threadId": native_id,
        "serverName": flags.SERVER,
        "detail": "toolsAndAuthOnly",
    }
    return "mcpServerStatus/list", parameters


def _tools_evidence(answer: JsonObject | RequestRefused) -> tuple[Evidence, tuple[str, ...]]:
    """Return which memory tools really loaded, and a warning where some did not."""
    loaded: set[str] = set()
    if not isinstance(answer, RequestRefused):
        for entry in config.objects(answer.get("data")):
            if entry.get("name") == flags.SERVER:
                loaded |= set(entry.get("tools") or {})
    missing = [name for name in flags.TOOL_NAMES if name not in loaded]
    seen = ", ".join(name for name in flags.TOOL_NAMES if name in loaded) or "none"
    evidence = Evidence(control="memory tools", observed=seen, source="mcpServerStatus/list")
    if not missing:
        return evidence, ()
    why = (
        f"Codex says: {answer.answer}"
        if isinstance(answer, RequestRefused)
        else "look for an allow-list of MCP servers in requirements.toml"
    )
    return evidence, (f"Codex did not load {', '.join(missing)} of the memory server; {why}",)


def _ask_all(channel: Channel, calls: Sequence[Call]) -> tuple[JsonObject | RequestRefused, ...]:
    """Ask at once where the channel can: a slow answer then hides the others' time."""
    if isinstance(channel, PipelinedChannel):
        return channel.request_all(calls, deadline=START_SECONDS)
    answers: list[JsonObject | RequestRefused] = []
    for method, parameters in calls:
        try:
            answers.append(channel.request(method, parameters, deadline=START_SECONDS))
        except RequestRefused as error:
            answers.append(error)
    return tuple(answers)


def control(channel: Channel, request: AgentRequest, grant: Grant | None) -> Confirmed:
    """Do the whole handshake; without a grant, nothing but the handshake."""
    evidence = open_agent(channel, request)
    if grant is None:
        return Confirmed(evidence=evidence, native_id=open_thread(channel, request, None))
    answer = read_config(channel, request)
    off = config.off_evidence(answer, "config/read")
    warnings = config_warnings(answer, grant)
    instructions = merged(answer, grant)
    native_id = open_thread(channel, request, instructions)
    if request.resume is None and config.awaits_trust(answer):
        answer = read_config(channel, request)
        off = config.off_evidence(answer, "config/read")
        warnings = config_warnings(answer, grant)
        if merged(answer, grant) != instructions:
            # Opening it made Codex trust the folder, as it does without amux: begin again.
            instructions = merged(answer, grant)
            native_id = open_thread(channel, request, instructions)
    calls = [_memory_mode(native_id), _hook_list(request)]
    if grant.tools is Tools.MCP:
        calls.append(_tool_list(native_id))
    mode, hooks, *tools = _ask_all(channel, calls)
    evidence = (*evidence, *off, _mode_evidence(request, mode))
    for one in tools:
        seen, dropped = _tools_evidence(one)
        evidence = (*evidence, seen)
        warnings += dropped
    return Confirmed(
        evidence=evidence,
        instructions=instructions,
        native_id=native_id,
        warnings=warnings + _hook_warnings(request, hooks),
    )


def confirm(channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
    """Answer a pre-flight: an app-server of the same binary, flags, home and folder."""
    evidence = open_agent(channel, request)
    answer = read_config(channel, request)
    off = config.off_evidence(answer, "config/read, pre-flight")
    config.check_not_pinned(answer)
    (hooks,) = _ask_all(channel, (_hook_list(request),))
    untrusted = tuple(
        f"{folder} is not trusted: its developer_instructions are left out of this session, also "
        "if you trust the folder on the screen"
        for folder in config.awaits_trust(answer)
    )
    return Confirmed(
        evidence=(*evidence, *off),
        instructions=merged(answer, grant),
        warnings=config_warnings(answer, grant) + untrusted + _hook_warnings(request, hooks),
    )


def control_server(channel: Channel, request: AgentRequest, instructions: str) -> Confirmed:
    """Confirm the server beside a screen before a person sees the screen."""
    evidence = open_agent(channel, request)
    answer = read_config(channel, request)
    off = config.off_evidence(answer, "config/read")
    if config.developer_instructions(answer) != instructions:
        raise NotConfirmed(
            "Codex's screen would not get the memory protocol",
            answer="developer_instructions is another text than amux passed",
        )
    return Confirmed(evidence=(*evidence, *off), instructions=instructions)


def settle_opened(channel: Channel, method: str, result: JsonObject, request: AgentRequest) -> None:
    """Disable memory mode for a thread that a supervisor's own request opened."""
    thread = result.get("thread") or {}
    if method in threads.OPENING and not thread.get("ephemeral"):
        disable_memory_mode(channel, request, str(thread.get("id")))


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
    calls = [_memory_mode(native_id)]
    if grant.tools is Tools.MCP:
        calls.append(_tool_list(native_id))
    answer, *tools = _ask_all(channel, calls)
    if isinstance(answer, RequestRefused) and "ephemeral" in answer.answer:
        # A side conversation is never stored, so it has no stored mode either.
        return Confirmed(native_id=native_id)
    evidence: tuple[Evidence, ...] = (_mode_evidence(request, answer),)
    warnings: tuple[str, ...] = ()
    for one in tools:
        seen, warnings = _tools_evidence(one)
        evidence = (*evidence, seen)
    return Confirmed(evidence=evidence, native_id=native_id, warnings=warnings)
