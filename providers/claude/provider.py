"""The Claude Code provider."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, ClassVar

from amux.providers import unknown_option
from amux.providers.base import Capabilities, Confirmed, Mode, Provider, Tools
from amux.providers.claude import arguments as argv
from amux.providers.claude import (
    context,
    control_requests,
    conversation,
    evidence,
    injected_text,
    native_memory,
    offered_tools,
    plan,
    preflight,
    settings,
    settings_sources,
    subagents,
    tools,
    transcript,
)
from amux.providers.claude.version import SUPPORT
from amux.providers.errors import BadArguments, require_utf8_folder

if TYPE_CHECKING:
    from amux.providers.base import (
        AgentRequest,
        Channel,
        Evidence,
        Facts,
        FileSearch,
        Grant,
        JsonObject,
        LaunchPlan,
        NativeResume,
        Preflight,
        Shutdown,
        Sighting,
        TranscriptPart,
        Transcripts,
        TurnEvent,
    )


class ClaudeProvider(Provider):
    """Launch Claude Code with one merged append, auto memory off, and memory tools over MCP."""

    name: ClassVar[str] = "claude"
    executable: ClassVar[str] = "claude"
    lists_tools_first: ClassVar[bool] = True
    unknown_conversation: ClassVar[tuple[str, ...]] = ("No conversation found with session ID",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True,
        tools=Tools.MCP,
        modes=frozenset({Mode.STREAM, Mode.TERMINAL, Mode.PASSTHROUGH}),
    )

    def parse_version(self, output: str) -> str:
        """Return the version in what `claude --version` printed."""
        return SUPPORT.read(output)

    def files_to_read(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the files that the caller's arguments and Claude's own settings come from."""
        items = argv.parse(request.arguments)
        mine = [
            posixpath.join(request.cwd, value)
            for name in (argv.APPEND_FILE, argv.SUBAGENT_FILE)
            for value in argv.values(items, name)
        ]
        mine.extend(settings.files(argv.values(items, argv.SETTINGS), request.cwd))
        mine.extend(tools.files_to_read(request, items))
        return (
            *mine,
            *settings_sources.files_to_read(request),
            *injected_text.files_to_read(request, items),
            *native_memory.folders(request),
        )

    def more_files_to_read(self, request: AgentRequest, facts: Facts) -> tuple[str, ...]:
        """Name the files of installed plugins, which may put text into the conversation."""
        named = argv.values(argv.parse(request.arguments), argv.SETTINGS)
        try:
            given = settings.read(named, cwd=request.cwd, facts=facts)
        except BadArguments:  # said by the plan, where it matters
            given = ()
        return (
            *injected_text.more_files_to_read(request, facts, given),
            *native_memory.chosen_folder(request, facts, given),
        )

    def files_to_search(self, request: AgentRequest) -> tuple[FileSearch, ...]:
        """Look for native memory that a resumed conversation has read."""
        search = conversation.memory_search(request)
        return () if search is None else (search,)

    def find_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find --resume, --continue and their like."""
        return conversation.native_resume(argv.parse(arguments))

    def resolve_resume(
        self, request: AgentRequest, named: NativeResume, facts: Facts
    ) -> NativeResume | tuple[str, ...] | None:
        """Find the conversation of `--continue` and of a path."""
        return conversation.resolve(request, argv.parse(request.arguments), named, facts)

    def opens_conversation(self, arguments: tuple[str, ...]) -> bool:
        """Say whether neither help nor the version is all that is asked for."""
        return not argv.given(argv.parse(arguments), *argv.PRINTED)

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Compute Claude's arguments, environment and files; without a stream, ask first."""
        require_utf8_folder("Claude", request.cwd)
        items = argv.parse(request.arguments)
        if grant is None:
            return plan.without_memory(request, items, facts)
        SUPPORT.require(request.version)
        unknown_option.refuse_version(f"Claude Code {request.version}", request.unknown)
        argv.refuse_without_conversation(items)
        named = argv.values(items, argv.SETTINGS)
        layers = settings.read(named, cwd=request.cwd, facts=facts)
        caller = plan.Caller(request=request, facts=facts, items=items, layers=layers)
        if request.mode is not Mode.STREAM and confirmed is None:
            return preflight.plan_preflight(caller, grant)
        return plan.with_memory(caller, grant)

    def unknown_flag(self, request: AgentRequest, said: str) -> str:
        """Name the option of amux's own that Claude does not know."""
        return unknown_option.find(said, request.arguments)

    def confirm_preflight(self, channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
        """Ask the pre-flight's Claude for its settings, and whether it may have the tools."""
        answer = evidence.read_settings(channel)
        off = evidence.memory_off_evidence(answer)
        seen, warnings = evidence.tools_allowed(channel, resumed=bool(grant.instructions))
        tools_seen, lacking = offered_tools.offered_evidence(channel, request, answer, seen)
        reached, unreached = subagents.protocol_evidence(request, answer, asked_before=True)
        return Confirmed(
            evidence=(off, tools_seen, reached),
            warnings=(*warnings, *lacking, *unreached),
            version=evidence.version(channel),
        )

    def handshake(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Confirm auto memory off and the memory tools there, before the first turn."""
        found: tuple[Evidence, ...] = ()
        warnings: tuple[str, ...] = ()
        if grant is not None:
            answer = evidence.read_settings(channel)
            off = evidence.memory_off_evidence(answer)
            loaded, warnings = evidence.tools_loaded(channel, resumed=bool(grant.instructions))
            tools_seen, lacking = offered_tools.offered_evidence(channel, request, answer, loaded)
            reached, unreached = subagents.protocol_evidence(request, answer, asked_before=False)
            found = (off, tools_seen, reached)
            warnings = (*warnings, *lacking, *unreached)
        return Confirmed(
            evidence=found,
            instructions=plan.instructions,
            native_id=plan.native_id,
            warnings=warnings,
        )

    def transcripts(self, request: AgentRequest, native_id: str) -> Transcripts | None:
        """Name the conversation's file, and those of its sub-agents."""
        if not conversation.NAMED.fullmatch(native_id):
            return None
        return transcript.transcripts(conversation.user_folder(request), native_id)

    def read_transcript(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        """Read native memory, text and tools in what Claude wrote down of its requests."""
        return transcript.read_part(part)

    def context_request(self) -> JsonObject | None:
        """Ask for the context's usage."""
        return context.QUESTION

    def turn_event(self, message: JsonObject) -> TurnEvent | None:
        """Read where turns begin and end, and compactions."""
        return context.turn_event(message)

    def read_context(self, message: JsonObject) -> tuple[Sighting, ...] | None:
        """Read native memory, instruction files and memory tools in the context's usage."""
        return context.read_answer(message)

    def rewrite_request(
        self,
        method: str,
        params: JsonObject,
        instructions: str,
        *,
        subagent_instructions: str | None = None,
    ) -> JsonObject:
        """Hold a supervisor's control requests to what the launch confirmed."""
        del method, subagent_instructions
        return control_requests.bind_request(params, instructions)

    def error_response(self, message: JsonObject, reason: str) -> JsonObject | None:
        """Answer a control request that is refused; other messages have no answer."""
        return control_requests.error_response(message, reason)

    def shutdown(self, request: AgentRequest) -> Shutdown:
        """Name the locks that Claude holds while it refreshes a login or writes its state.

        On the end of its stdin Claude leaves at once, also in the middle of a refresh.
        """
        return conversation.ending(request)

    def on_message(self, message: JsonObject) -> tuple[Evidence | Sighting, ...]:
        """Read the `init` event of each turn."""
        if message.get("type") == "system" and message.get("subtype") == "init":
            return evidence.read_init(message)
        return ()
