"""The Codex provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from amux.providers import outer_home
from amux.providers.base import (
    Capabilities,
    Confirmed,
    Facts,
    LaunchPlan,
    Mode,
    NativeResume,
    Preflight,
    Provider,
    Tools,
    Transcripts,
)
from amux.providers.codex import (
    flags,
    handshake,
    native_memory,
    plan,
    resume,
    roles,
    rollout,
    screen,
    subagents,
    supervisor_threads,
    threads,
    version,
)
from amux.providers.codex.arguments import read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.providers.base import (
        AgentRequest,
        Channel,
        Grant,
        JsonObject,
        Sighting,
        TranscriptPart,
    )


class CodexProvider(Provider):
    """Codex, controlled through its app-server."""

    name: ClassVar[str] = "codex"
    executable: ClassVar[str] = "codex"
    folders: ClassVar[tuple[str, ...]] = (".codex",)
    lists_tools_first: ClassVar[bool] = True
    unknown_conversation: ClassVar[tuple[str, ...]] = ("no rollout found",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True, tools=Tools.MCP, modes=frozenset(Mode)
    )
    path_variables: ClassVar[tuple[str, ...]] = ("CODEX_HOME",)
    options: ClassVar[Mapping[str, str]] = {
        plan.WITHOUT_HOOKS: "switch off every hook of Codex for this launch",
        handshake.THREAD_CONFIG: "a JSON object for the thread's own configuration",
    }

    def parse_version(self, output: str) -> str:
        """Return the version in what `codex --version` printed."""
        return version.SUPPORT.read(output)

    def files_to_read(self, request: AgentRequest) -> tuple[str, ...]:
        """Ask for the agent roles, which may replace the protocol, and for Codex's memories."""
        home = handshake.planned_home(request)
        return (
            *roles.files_to_read(home, request.cwd),
            *native_memory.folders(home),
            *outer_home.paths(request, (*plan.OUTER, *outer_home.MARKERS)),
            *outer_home.project_marks(request),
        )

    def find_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find `resume ID` or `fork ID` among the caller's arguments, also behind `exec`."""
        return read(arguments).resume

    def opens_conversation(self, arguments: tuple[str, ...]) -> bool:
        """Say whether neither help nor the version is all that is asked for."""
        return read(arguments).converses

    def resolve_resume(
        self, request: AgentRequest, named: NativeResume, facts: Facts
    ) -> NativeResume | tuple[str, ...] | None:
        """Find the conversation of `--last`, and of a name, in Codex's own files."""
        home = handshake.planned_home(request)
        caller = read(request.arguments)
        return resume.resolve(caller, named, facts, home=home, request=request)

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Plan an app-server on stdio, `codex exec`, or a screen with an app-server beside it."""
        caller = plan.caller_arguments(request, bound=grant is not None)
        if grant is None:
            return plan.without_memory(request, caller, facts)
        return plan.with_memory(request, caller, grant, facts, confirmed)

    def unknown_flag(self, request: AgentRequest, said: str) -> str:
        """Name amux's own flag that Codex does not understand, by the key that it names.

        Those first without which a launch can be; any other where the caller set nothing at that
        key.
        """
        at = flags.rejected_key(said)
        names = (
            [name for name in flags.our_keys_at(at) if name not in request.unknown] if at else []
        )
        if names and names[0] not in flags.OPTIONAL:
            theirs = read(request.arguments).keys
            names = [] if any(flags.keys_overlap(name, at) for name in theirs) else names
        return names[0] if names else ""

    def confirm_preflight(self, channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
        """Confirm on an app-server of the same flags that native memory is off."""
        return handshake.confirm(channel, request, grant)

    def handshake(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Open the thread, or confirm the server beside a screen, which opens its own threads."""
        if plan.server is not None and grant is not None:
            return screen.control_server(channel, request, grant, plan)
        return handshake.control(channel, request, grant)

    def transcripts(self, request: AgentRequest, native_id: str) -> Transcripts | None:
        """Name the conversation's rollout; those of its sub-agents lie among all others."""
        if not native_id:
            return None
        rollouts = f"{handshake.planned_home(request)}/sessions/*/*/*/rollout-*"
        return Transcripts(main=f"{rollouts}-{native_id}.jsonl", beside=(f"{rollouts}.jsonl",))

    def candidate_transcripts(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the rollouts, among which a `codex exec` that ended well left its conversation."""
        caller = read(request.arguments)
        if request.mode is Mode.STREAM or not caller.executes or caller.has("--ephemeral"):
            return ()
        return (f"{handshake.planned_home(request)}/sessions/*/*/*/rollout-*.jsonl",)

    def identify_conversation(self, request: AgentRequest, part: TranscriptPart) -> str:
        """Return the id of a conversation that a `codex exec` of this launch may have begun."""
        return rollout.identify(part, cwd=request.cwd, since=request.began)

    def read_transcript(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        """Read the developer items that Codex sent, in the conversation and its sub-agents."""
        return rollout.read_part(part)

    def rewrite_request(
        self,
        method: str,
        params: JsonObject,
        instructions: str,
        *,
        subagent_instructions: str | None = None,
    ) -> JsonObject:
        """Own the `config` object and the instructions of every thread of the launch."""
        return threads.bind_request(method, params, instructions, subagent_instructions)

    def check_request(
        self, channel: Channel, method: str, params: JsonObject, known: frozenset[str]
    ) -> None:
        """Refuse a thread of others, and one whose sub-agents would not get the protocol."""
        supervisor_threads.refuse_foreign_thread(channel, method, params, known)
        subagents.refuse_own_text(channel, method, params)

    def on_response(
        self, channel: Channel, method: str, result: JsonObject, request: AgentRequest
    ) -> Confirmed | None:
        """Disable memory mode for a thread that the supervisor opened."""
        return supervisor_threads.settle_opened(channel, method, result, request)

    def on_server_message(
        self,
        channel: Channel,
        message: JsonObject | None,
        request: AgentRequest,
        grant: Grant,
        settled: frozenset[str],
    ) -> Confirmed | None:
        """Disable memory mode for each thread that a person opens on the screen."""
        if message is None:
            return screen.settle_loaded(channel, request, grant, settled)
        return screen.settle_started(channel, message, request, grant, settled)
