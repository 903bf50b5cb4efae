"""The class that a provider derives from, its methods in the order in which a launch calls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from amux.providers.base.plan import Confirmed
from amux.providers.base.shutdown import Shutdown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.providers.base.channel import Channel, JsonObject
    from amux.providers.base.plan import Capabilities, Evidence, LaunchPlan, Preflight
    from amux.providers.base.request import AgentRequest, Facts, FileSearch, Grant, NativeResume
    from amux.providers.base.transcript import Sighting, TranscriptPart, Transcripts
    from amux.providers.base.turn import TurnEvent


class Provider(ABC):
    """Knows one agent. Instances hold no state; each method computes from its arguments."""

    name: ClassVar[str]
    """The name of its entry point."""
    executable: ClassVar[str]
    """The command that is looked for in PATH."""
    capabilities: ClassVar[Capabilities]
    path_variables: ClassVar[tuple[str, ...]] = ()
    """Variables that hold a path through which the agent sees links: the request resolves them."""
    options: ClassVar[Mapping[str, str]] = {}
    """Options of a launch that this provider alone knows: name, and one line for people."""
    folders: ClassVar[tuple[str, ...]] = ()
    """Folders below a relocated home that the agent needs before it starts (0700 when made)."""
    lists_tools_first: ClassVar[bool] = False
    """The agent asks its MCP servers for their tools before its first turn (in a stream)."""
    unknown_conversation: ClassVar[tuple[str, ...]] = ()
    """What the agent says where it is to resume a conversation that it does not have."""

    def find_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find a resume or fork of a native conversation among the agent's own arguments.

        When: before memory, in a launch that names no session of amux.
        """
        del arguments
        return None

    @abstractmethod
    def parse_version(self, output: str) -> str:
        """Return the version in what `<command> --version` printed; raise UnknownVersion.

        When: before memory; `output` is empty for a provider that names no executable.
        """

    def resolve_resume(
        self, request: AgentRequest, named: NativeResume, facts: Facts
    ) -> NativeResume | tuple[str, ...] | None:
        """Say which conversation the arguments continue, where they do not name it by its id.

        `named` is what `find_resume` found. Return paths to have them read first (as facts are
        named): the next call has them. None: there is no such conversation, so a new one begins.

        When: before memory, where amux has no record of what `find_resume` found.
        """
        del request, facts
        return named

    def transcripts(self, request: AgentRequest, native_id: str) -> Transcripts | None:
        """Name the files that hold this conversation; None where the agent keeps none.

        When: resumed, running and ended, each time before `read_transcript`.
        """
        del request, native_id
        return None

    def read_transcript(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        """Read what a part of a conversation's file shows.

        A later sighting of a control takes the place of an earlier one.

        When: resumed, with what was written without amux; running, after the first turn, and ended,
        with everything that the run wrote so far.
        """
        del part
        return ()

    def files_to_read(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the absolute paths that the plan depends on; `FOLDER/*.ending` stands for many.

        When: planning.
        """
        del request
        return ()

    def files_to_search(self, request: AgentRequest) -> tuple[FileSearch, ...]:
        """Name what to look for in files that are too long to be read as facts.

        When: planning.
        """
        del request
        return ()

    def more_files_to_read(self, request: AgentRequest, facts: Facts) -> tuple[str, ...]:
        """Name further paths, which the files that were read led to.

        When: planning, once, with the files of `files_to_read` in `facts`.
        """
        del request, facts
        return ()

    @abstractmethod
    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Compute how to start the agent; without a grant, as it is without memory.

        When: planning, without `confirmed`; after a pre-flight again, with what it confirmed.
        """

    def shutdown(self, request: AgentRequest) -> Shutdown:
        """Say how to end an agent that must not be cut short.

        When: pre-flight, starting and running, for an agent that was only asked, whose launch
        fails, or whose run is ended by amux.
        """
        del request
        return Shutdown()

    def confirm_preflight(self, channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
        """Ask a pre-flight's agent for the controls; raise NotConfirmed with its own answer.

        When: pre-flight, if `plan` returned one.
        """
        raise NotImplementedError(self.name)

    def unknown_flag(self, request: AgentRequest, said: str) -> str:
        """Name the flag of amux's own of which an agent died that ended with `said` on its stderr.

        Empty where it was none. The launcher then plans once more with it in `request.unknown`;
        a plan that needs the flag raises UnsupportedVersion, which names it.

        When: pre-flight and starting, if the agent ended at once.
        """
        del request, said
        return ""

    def opens_conversation(self, arguments: tuple[str, ...]) -> bool:
        """Say whether the agent's own arguments open a conversation; some only print (`--help`).

        When: starting, before the agent.
        """
        del arguments
        return True

    def handshake(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Do the handshake on the agent's channel and confirm the controls; raise NotConfirmed.

        When: starting, if the plan gives the agent, or a server beside it, a channel of JSON.
        """
        del channel, request, grant
        return Confirmed(instructions=plan.instructions)

    def context_request(self) -> JsonObject | None:
        """Return the message that asks the agent on its channel what its context holds.

        None where the agent cannot be asked.

        When: running, once; amux sends the message between two turns.
        """
        return None

    def rewrite_request(
        self,
        method: str,
        params: JsonObject,
        instructions: str,
        *,
        subagent_instructions: str | None = None,
    ) -> JsonObject:
        """Return a supervisor's own later request as it may be sent in a launch with memory.

        On a channel of JSON lines `method` is the message's type and `params` the whole message.
        `instructions` is the frozen text; `subagent_instructions` is passed only where the launch
        confirmed one. Raises BadArguments where the request would undo a control of the launch.

        When: running, for each request and message of the supervisor.
        """
        del method, instructions, subagent_instructions
        return params

    def error_response(self, message: JsonObject, reason: str) -> JsonObject | None:
        """Return what the agent would answer to a message that `rewrite_request` refused; or None.

        When: running, with a plan that is `driven`.
        """
        del message, reason
        return None

    def check_request(
        self, channel: Channel, method: str, params: JsonObject, known: frozenset[str]
    ) -> None:
        """Refuse a supervisor's own request for a conversation that the launch cannot hold.

        `params` are as `rewrite_request` returned them; `known` holds the native ids of the
        session's own. Raises BadArguments.

        When: running, after each `rewrite_request` that raised nothing.
        """
        del channel, method, params, known

    def on_response(
        self, channel: Channel, method: str, result: JsonObject, request: AgentRequest
    ) -> Confirmed | None:
        """Act on the result of a supervisor's own request: it may have opened a conversation.

        Return what was established about it, None where it opened none.

        When: running, for each result of a request that `check_request` let through.
        """
        del channel, method, result, request
        return None

    def on_message(self, message: JsonObject) -> tuple[Evidence | Sighting, ...]:
        """Read evidence in a later message of the channel; raise NotConfirmed if it contradicts.

        What contradicts the launch and need not end it is a Sighting.

        When: running, for each message of the agent.
        """
        del message
        return ()

    def read_context(self, message: JsonObject) -> tuple[Sighting, ...] | None:
        """Read the answer to `context_request`; None for any other message.

        Return no sighting of what the agent does not tell.

        When: running, for each message of the agent while that answer is awaited.
        """
        del message
        return None

    def turn_event(self, message: JsonObject) -> TurnEvent | None:
        """Say whether a message of the channel, in either direction, begins or ends a turn.

        When: running, for each message, if `context_request` returned one.
        """
        del message
        return None

    def on_server_message(
        self,
        channel: Channel,
        message: JsonObject | None,
        request: AgentRequest,
        grant: Grant,
        settled: frozenset[str],
    ) -> Confirmed | None:
        """Act on a later message of a server's channel: a person opened a thread on the screen.

        `message` is None now and then where none came; `settled` holds the native ids settled so
        far. Return what was established about one thread, None where there is nothing to settle;
        raise NotConfirmed where a thread's native memory cannot be switched off.

        When: running, with a plan that has a `server`.
        """
        del channel, message, request, grant, settled
        return None

    def candidate_transcripts(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the files among which a run's conversation is where nothing tells its native id.

        Patterns, as in `transcripts`; none for a run that may have ended well without a file.

        When: ended, if the agent ended well and its conversation's id is not known.
        """
        del request
        return ()

    def identify_conversation(self, request: AgentRequest, part: TranscriptPart) -> str:
        """Return the native id of the conversation in this file if this run may have begun it.

        When: ended, for each file that `candidate_transcripts` names and the run wrote.
        """
        del request, part
        return ""
