"""The conversation that opens a Codex thread and confirms each control of a bound launch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.providers.base import Confirmed, Evidence, Tools
from amux.providers.codex import (
    effective_config,
    features,
    flags,
    hooks,
    subagents,
    threads,
    tools,
    version,
)
from amux.providers.codex.app_server import ANSWER_SECONDS, START_SECONDS, ask_all
from amux.providers.errors import NotConfirmed, RequestRefused, UnsupportedVersion
from amux.providers.release import number

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, Grant, JsonObject
    from amux.providers.codex.app_server import Answer, Call

CLIENT: Final = {"name": "amux", "title": "amux", "version": "0.1.0"}
THREAD_CONFIG: Final = "thread-config"
TEXTS: Final = (flags.INSTRUCTIONS, flags.SUBAGENT_TEXT)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a thread is told, and its sub-agents where they do not get the same; each is frozen."""

    instructions: str
    subagents: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What `initialize` answered: evidence, and the version that Codex says it is, or nothing."""

    evidence: tuple[Evidence, ...]
    version: str

    def another(self, request: AgentRequest) -> Confirmed | None:
        """Return what ends the handshake where this is not the version that was planned for."""
        if self.version in {"", request.version}:
            return None
        return Confirmed(evidence=self.evidence, version=self.version)


def open_agent(channel: Channel, request: AgentRequest) -> Opened:
    """Initialize, and check that the agent serves the home that was planned for it."""
    parameters: JsonObject = {"clientInfo": CLIENT, "capabilities": {"experimentalApi": True}}
    answer = channel.request("initialize", parameters, deadline=ANSWER_SECONDS)
    channel.notify("initialized")
    home = answer.get("codexHome")
    planned = planned_home(request)
    said = version.from_user_agent(str(answer.get("userAgent") or ""))
    if home is None and number(request.version) < version.FIRST_WITH_MEMORY_MODE:
        return Opened((), said)  # it tells no home yet, and is launched without memory only
    if home != planned:
        raise NotConfirmed(
            f"Codex {request.version} does not use the home planned for it, {planned}",
            answer=f"codexHome = {json.dumps(home)}",
        )
    evidence = Evidence(control="codexHome", observed=str(home), source="initialize")
    return Opened((evidence,), said)


def planned_home(request: AgentRequest) -> str:
    """Return the Codex home that the environment asks for. An empty value means unset."""
    return request.environment.get("CODEX_HOME") or f"{request.home.rstrip('/')}/.codex"


def read_config(channel: Channel, request: AgentRequest) -> JsonObject:
    """Return the effective configuration for the launch's folder, layers included."""
    (answer,) = ask_all(channel, (_configuration(request),))
    return _readable(answer)


def read_memory_off(
    channel: Channel, request: AgentRequest, when: str = ""
) -> tuple[JsonObject, tuple[Evidence, ...]]:
    """Return the effective configuration, and evidence that native memory is off.

    Raises NotConfirmed. `when` is added to where the evidence comes from.
    """
    read, listed = ask_all(channel, (_configuration(request), features.list_request()))
    answer = _readable(read)
    off = effective_config.memory_off_evidence(answer, f"config/read{when}")
    return answer, (*off, features.memory_off_evidence(listed, f"{features.LIST}{when}"))


def _configuration(request: AgentRequest) -> Call:
    return "config/read", {"includeLayers": True, "cwd": request.cwd}


def _readable(answer: Answer) -> JsonObject:
    if isinstance(answer, RequestRefused):
        raise NotConfirmed(
            "Codex cannot read its own configuration; mend the file that it names",
            answer=answer.answer,
        ) from answer
    return answer


def config_warnings(answer: JsonObject, grant: Grant) -> tuple[str, ...]:
    """Return what the configuration does to the launch, apart from native memory."""
    found = effective_config.role_warnings(answer) + subagents.warnings(answer, grant)
    if grant.tools is Tools.MCP:
        found += effective_config.server_warnings(answer, flags.server_entry(grant))
        found += effective_config.namespace_warnings(answer)
    return found


def merge_texts(
    answer: JsonObject, request: AgentRequest, grant: Grant, *, lasting: bool = False
) -> Texts:
    """Return the frozen texts of a resume, or the configured ones and the protocol."""
    instructions = grant.instructions
    if instructions is None:
        instructions = effective_config.append_protocol(
            effective_config.developer_instructions(answer), grant.protocol
        )
    return Texts(instructions, subagents.merge_text(answer, request, grant, lasting=lasting))


def open_bound_thread(channel: Channel, request: AgentRequest, texts: Texts) -> tuple[str, Texts]:
    """Open the thread and return its id, with the texts that it was opened with.

    A session's text of sub-agents' own is left out where an older Codex resumes it, which does not
    know the key: its sub-agents get what their parent gets.
    """
    try:
        return open_thread(channel, request, texts), texts
    except RequestRefused as error:
        at = flags.rejected_key(error.answer)
        if texts.subagents is None or not flags.keys_overlap(flags.SUBAGENT_TEXT, at):
            raise
    return open_bound_thread(channel, request, replace(texts, subagents=None))


def open_thread(channel: Channel, request: AgentRequest, texts: Texts | None) -> str:
    """Start, resume or fork the thread and return its id."""
    parameters: JsonObject = {"cwd": request.cwd}
    given = request.options.get(THREAD_CONFIG)
    if given is not None:
        parameters["config"] = threads.read_config(given, bound=texts is not None)
    if texts is not None:
        parameters["developerInstructions"] = texts.instructions
        if texts.subagents is not None:
            own = parameters.get("config", {})
            parameters["config"] = threads.with_subagent_text(own, texts.subagents)
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
    (answer,) = ask_all(channel, (memory_mode_request(native_id),))
    return memory_mode_evidence(request, answer)


def memory_mode_request(native_id: str) -> Call:
    """Return the request that stores the disabled mode."""
    return threads.MEMORY_MODE, {"threadId": native_id, "mode": "disabled"}


def memory_mode_evidence(request: AgentRequest, answer: Answer) -> Evidence:
    """Read the answer to it; raise UnsupportedVersion or NotConfirmed."""
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


def control(channel: Channel, request: AgentRequest, grant: Grant | None) -> Confirmed:
    """Do the whole handshake; without a grant, nothing but the handshake."""
    opened = open_agent(channel, request)
    another = opened.another(request)
    if another is not None:
        return another
    if grant is None:
        native_id = open_thread(channel, request, None)
        return Confirmed(evidence=opened.evidence, native_id=native_id, version=opened.version)
    bound = _open_and_confirm(channel, request, grant)
    answer, sent, native_id = bound.configuration, bound.texts, bound.native_id
    asking = tools.choose_question(request, grant, answer, native_id)
    calls = (memory_mode_request(native_id), hooks.list_request(request), *asking.calls)
    mode, listed, *answers = ask_all(channel, calls)
    seen, dropped = asking.read(channel, answers)
    return Confirmed(
        evidence=(
            *opened.evidence,
            *bound.off,
            memory_mode_evidence(request, mode),
            *seen,
            *subagents.evidence(answer, grant, sent.subagents, "sent in the thread's config"),
        ),
        instructions=sent.instructions,
        subagent_instructions=sent.subagents,
        native_id=native_id,
        version=opened.version,
        warnings=bound.warnings + dropped + hooks.warnings(request, listed),
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """An open thread, what it was opened with, and what was read of native memory then."""

    configuration: JsonObject
    off: tuple[Evidence, ...]
    warnings: tuple[str, ...]
    native_id: str
    texts: Texts


def _open_and_confirm(channel: Channel, request: AgentRequest, grant: Grant) -> _Bound:
    """Confirm that native memory is off, and open the thread; ask again if a folder was trusted."""
    answer, off = read_memory_off(channel, request)
    warnings = config_warnings(answer, grant)
    texts = merge_texts(answer, request, grant)
    native_id, sent = open_bound_thread(channel, request, texts)
    if request.resume is None and any(
        effective_config.awaiting_trust(answer, key) for key in TEXTS
    ):
        answer, off = read_memory_off(channel, request)
        warnings = config_warnings(answer, grant)
        if merge_texts(answer, request, grant) != texts:
            # Opening it made Codex trust the folder, as it does without amux: begin again.
            native_id, sent = open_bound_thread(
                channel, request, merge_texts(answer, request, grant)
            )
    return _Bound(answer, off, warnings, native_id, sent)


def confirm(channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
    """Answer a pre-flight: an app-server of the same binary, flags, home and folder."""
    opened = open_agent(channel, request)
    another = opened.another(request)
    if another is not None:
        return another
    answer, off = read_memory_off(channel, request, ", pre-flight")
    effective_config.refuse_pinned_instructions(answer)
    (listed,) = ask_all(channel, (hooks.list_request(request),))
    untrusted = tuple(
        f"{folder} is not trusted: its {key} are left out of this session, also if you trust the "
        "folder on the screen"
        for key in TEXTS
        for folder in effective_config.awaiting_trust(answer, key)
    )
    texts = merge_texts(answer, request, grant, lasting=True)
    own = subagents.evidence(answer, grant, texts.subagents, "sent by -c")
    return Confirmed(
        evidence=(*opened.evidence, *off, *own),
        instructions=texts.instructions,
        subagent_instructions=texts.subagents,
        version=opened.version,
        warnings=config_warnings(answer, grant) + untrusted + hooks.warnings(request, listed),
    )
