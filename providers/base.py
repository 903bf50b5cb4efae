"""What a provider is: the plugin that knows one agent.

A provider is pure. It computes plans from values and asks the agent questions over a
channel that it is handed; it opens no file, starts no process, reads no clock and no
environment. The launcher carries its answers through, in this order:

    questions(request)            which files the launcher should read for it
    plan(request, grant, facts)   a LaunchPlan, or a Preflight that must be answered first
    confirm(channel, …)           on a preflight's channel: is native memory off?
    control(channel, …)           on the agent's own channel: the same, and the handshake
    observe(message, …)           on each later message: does it contradict what was confirmed?
    transcripts(request, …)       which files hold the conversation
    sightings(part)               what the lines that were added to them show
    inquiry(), answered(message)  what the agent itself says its context holds, between two turns

Register a provider through the entry-point group `amux.providers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from amux.providers.ending import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amux.materializer.values import PlannedFile
    from amux.providers.errors import RequestRefused
    from amux.providers.inquiry import Moment
    from amux.providers.sighting import Sighting, TranscriptPart, Transcripts

JsonObject: TypeAlias = dict[str, Any]
VERSION = "version"
"""The control whose evidence is the version that the agent itself says that it is."""
MAX_FACT_BYTES = 1024 * 1024
"""How much of a file is read for a provider; one of this size or more may be longer."""


class Mode(StrEnum):
    """Who talks to the agent.

    STREAM: the supervisor, over a structured channel. TERMINAL: a person, on the agent's own
    screen. PASSTHROUGH: a program or pipe; stdio is handed through untouched.
    """

    STREAM = "stream"
    TERMINAL = "terminal"
    PASSTHROUGH = "passthrough"


class Tools(StrEnum):
    """How the agent reaches memory: MCP tools, the `amux memory` command, or not at all."""

    MCP = "mcp"
    CLI = "cli"
    NONE = "none"


class Framing(StrEnum):
    """What a channel carries: JSON-RPC lines, other JSON lines, plain lines, or raw bytes.

    WEBSOCKET: JSON-RPC messages on the Unix socket that the plan names.
    """

    JSON_RPC = "json-rpc"
    WEBSOCKET = "websocket"
    JSON_LINES = "json-lines"
    LINES = "lines"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the provider can do. `missing` names, for people, what a bound launch would lack."""

    memory: bool
    tools: Tools
    modes: frozenset[Mode]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeResume:
    """Which native conversation to continue, and whether as a fork of it.

    `native_id` is empty where nobody can know it before: a person picks it on the screen.
    `aliases` are further names that it may have been recorded under, `place` the file that holds
    it, where that is how the agent is told.
    """

    native_id: str
    fork: bool = False
    aliases: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """What a provider may know of a launch. Paths are absolute and as the target sees them.

    `command` starts the agent (interpreter and script where the agent is a script).
    `environment` is the agent's, before the provider's own additions; `options` are among those
    that the provider declares. `interpreter` is the Python that amux itself runs on.
    `fresh_id` is a random UUID that a provider may give to a new native conversation. `unknown`
    holds those of amux's own flags that this very agent was seen not to know. `conversations` are
    the native ids of the session's own conversations so far, `began` when the launch began, in
    seconds since the epoch. `outer_homes` are the names of the caller's home where the agent has
    another one and `cwd` is in the caller's, or is it.
    """

    command: tuple[str, ...]
    version: str
    arguments: tuple[str, ...]
    mode: Mode
    cwd: str
    home: str
    environment: Mapping[str, str]
    interpreter: str = ""
    fresh_id: str = ""
    resume: NativeResume | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    conversations: frozenset[str] = frozenset()
    began: float = 0.0
    outer_homes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Memory for one launch. `instructions` is set on a resume: the frozen text, byte for byte.

    So is `subagent_instructions`, where the session's sub-agents get a text of their own instead.

    `cli` is the argv of the agent-side command, `connection` the path of its connection file,
    `config` and `work` the run's folders (`amux.materializer.values.RunPaths`). `mcp` is the argv
    of the MCP server, with the list of tools that the session began with.
    """

    binding: str
    protocol: str
    tools: Tools
    cli: tuple[str, ...]
    connection: str
    config: str
    work: str
    tool_list: str = "1"
    instructions: str | None = None
    subagent_instructions: str | None = None

    @property
    def mcp(self) -> tuple[str, ...]:
        """Return the argv of the MCP server."""
        return (*self.cli, "mcp", "--tools", self.tool_list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One native control, and what the agent itself answered about it.

    `asked` is when a remembered answer was given (RFC 3339, UTC); empty: asked by this launch.
    """

    control: str
    observed: str
    source: str
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a conversation with the agent established.

    `instructions` is the merged text that the session freezes, `subagent_instructions` another one
    for its sub-agents, where they do not get the same. `native_id` is the agent's own id of the
    conversation, where it has one by now. `version` is what the agent itself says that it
    is, where it does: a launcher that asked another one plans anew. `foreign`: the conversation did
    not begin in this session, so that what an earlier memory put into it is there.
    """

    evidence: tuple[Evidence, ...] = ()
    instructions: str | None = None
    subagent_instructions: str | None = None
    native_id: str | None = None
    warnings: tuple[str, ...] = ()
    version: str = ""
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """A short run of the same binary that must confirm the controls before the agent starts.

    `environment` is added to the request's; `files` are in place for its time only.
    `remember` digests everything that the answer depends on; the launcher keeps the answer under
    it. None: ask each time.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    framing: Framing
    files: tuple[PlannedFile, ...] = ()
    remember: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How to start the agent.

    `environment` is added to the request's, `without` removed from it. `server` is the argv of a
    second process that must run beside the agent (an app-server beside its screen); the channel
    is then the server's, on the Unix socket `socket`, which it makes. The instructions and
    `native_id` where they are known before the start. `driven`: in a mode where stdio is the
    caller's, a program of the caller's drives the agent with JSON lines; the launcher carries them,
    each held by `outgoing`.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    without: frozenset[str] = frozenset()
    files: tuple[PlannedFile, ...] = ()
    framing: Framing = Framing.RAW
    driven: bool = False
    server: tuple[str, ...] | None = None
    socket: str | None = None
    instructions: str | None = None
    subagent_instructions: str | None = None
    native_id: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A byte string to look for in a whole file, however long; `FOLDER/*/NAME` is any such file."""

    path: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What the launcher read for a provider: file contents by path; None where there is no file.

    A path that ends in `/` is a folder: its content names each entry, its size and its time, a
    line each. `FOLDER/*.ending` holds name, NUL, content, NUL of each such file. `found` holds
    the traces that were there.
    """

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    found: frozenset[Trace] = frozenset()


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


class Provider(ABC):
    """Knows one agent. Instances hold no state; each method computes from its arguments."""

    name: ClassVar[str]
    executable: ClassVar[str]
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

    @abstractmethod
    def version(self, output: str) -> str:
        """Return the version in what `<command> --version` printed; raise UnknownVersion."""

    def questions(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the absolute paths that the plan depends on; `FOLDER/*.ending` stands for many."""
        del request
        return ()

    def follow(self, request: AgentRequest, facts: Facts) -> tuple[str, ...]:
        """Name further paths, which the files that were read led to; they are read once."""
        del request, facts
        return ()

    def traces(self, request: AgentRequest) -> tuple[Trace, ...]:
        """Name what to look for in files that are too long to be read as facts."""
        del request
        return ()

    def native_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find a resume or fork of a native conversation among the agent's own arguments."""
        del arguments
        return None

    def continued(
        self, request: AgentRequest, named: NativeResume, facts: Facts
    ) -> NativeResume | tuple[str, ...] | None:
        """Say which conversation the arguments continue, where they do not name it by its id.

        `named` is what `native_resume` found. Return paths to have them read first (as facts are
        named): the next call has them. None: there is no such conversation, so a new one begins.
        """
        del request, facts
        return named

    def converses(self, arguments: tuple[str, ...]) -> bool:
        """Say whether the agent's own arguments open a conversation; some only print (`--help`)."""
        del arguments
        return True

    @abstractmethod
    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Compute how to start the agent; `confirmed` is a preflight's outcome."""

    def unknown_flag(self, request: AgentRequest, said: str) -> str:
        """Name the flag of amux's own of which an agent died that ended with `said` on its stderr.

        Empty where it was none. The launcher then plans once more with it in `request.unknown`;
        a plan that needs the flag raises UnsupportedVersion, which names it.
        """
        del request, said
        return ""

    def confirm(self, channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
        """Ask a preflight's agent for the controls; raise NotConfirmed with its own answer."""
        raise NotImplementedError(self.name)

    def control(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Do the handshake on the agent's channel and confirm the controls."""
        del channel, request, grant
        return Confirmed(instructions=plan.instructions)

    def ending(self, request: AgentRequest) -> Ending:
        """Say how the agent is ended that was only asked, or whose launch fails."""
        del request
        return Ending()

    def observe(self, message: JsonObject) -> tuple[Evidence | Sighting, ...]:
        """Read evidence in a later message of the channel; raise NotConfirmed if it contradicts.

        What contradicts the launch and need not end it is a Sighting.
        """
        del message
        return ()

    def transcripts(self, request: AgentRequest, native_id: str) -> Transcripts | None:
        """Name the files that hold this conversation; None where the agent keeps none."""
        del request, native_id
        return None

    def unnamed(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the files among which a run's conversation is where nothing tells its native id.

        Patterns, as in `transcripts`; none for a run that may have ended well without a file.
        """
        del request
        return ()

    def told_by(self, request: AgentRequest, part: TranscriptPart) -> str:
        """Return the native id of the conversation in this file if this run may have begun it."""
        del request, part
        return ""

    def sightings(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        """Read what a part of a conversation's file shows; called with each part that is new.

        After the first turn of a run and at its end the part is everything that the run wrote so
        far; before a resume it is what was written without amux. A later sighting of a control
        takes the place of an earlier one.
        """
        del part
        return ()

    def inquiry(self) -> JsonObject | None:
        """Return the message that asks the agent on its channel what its context holds.

        It is sent between two turns, when nobody waits; None where the agent cannot be asked.
        """
        return None

    def moment(self, message: JsonObject) -> Moment | None:
        """Say what a message of the channel, in either direction, means for asking."""
        del message
        return None

    def answered(self, message: JsonObject) -> tuple[Sighting, ...] | None:
        """Read the answer to `inquiry`; None for any other message.

        What the agent does not tell is no sighting of its absence.
        """
        del message
        return None

    def outgoing(
        self,
        method: str,
        params: JsonObject,
        instructions: str,
        *,
        subagent_instructions: str | None = None,
    ) -> JsonObject:
        """Return a supervisor's own later request as it may be sent in a bound launch.

        On a channel of JSON lines `method` is the message's type and `params` the whole message.
        `instructions` is the frozen text; `subagent_instructions` is passed only where the launch
        confirmed one. Raises BadArguments where the request would undo a control of the launch.
        """
        del method, instructions, subagent_instructions
        return params

    def refusal(self, message: JsonObject, reason: str) -> JsonObject | None:
        """Return what the agent would answer to a message that `outgoing` refused, if anything."""
        del message, reason
        return None

    def admit(
        self, channel: Channel, method: str, params: JsonObject, known: frozenset[str]
    ) -> None:
        """Refuse a supervisor's own request for a conversation that the launch cannot hold.

        `params` are as `outgoing` returned them; `known` holds the native ids of the session's own.
        Raises BadArguments.
        """
        del channel, method, params, known

    def opened(
        self, channel: Channel, method: str, result: JsonObject, request: AgentRequest
    ) -> Confirmed | None:
        """Act on the result of a supervisor's own request: it may have opened a conversation.

        Return what was established about it, None where it opened none.
        """
        del channel, method, result, request
        return None

    def attend(
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
        """
        del channel, message, request, grant, settled
        return None
