"""The Pi provider: plans for its screen, one shot and RPC mode, and what RPC mode tells."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, ClassVar, Final

from amux.materializer.values import PlannedFile
from amux.providers import outer_home, unknown_option
from amux.providers.base import (
    AgentRequest,
    Capabilities,
    Channel,
    Confirmed,
    Evidence,
    Facts,
    Framing,
    Grant,
    JsonObject,
    LaunchPlan,
    Mode,
    NativeResume,
    Preflight,
    Provider,
    Tools,
)
from amux.providers.errors import BadArguments, RequestRefused, require_utf8_folder
from amux.providers.pi import appended_text, conversation, extensions, session_files, transcript
from amux.providers.pi import arguments as argv
from amux.providers.pi.version import SUPPORT, Release

if TYPE_CHECKING:
    from amux.providers.base import Sighting, TranscriptPart, Transcripts

ARGUMENT_BYTES: Final = 131_071
ANSWER_DEADLINE: Final = 30.0
FILE: Final = "append-system-prompt.md"
OUTER: Final = ("AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
"""Of these Pi reads the first that is there, in each folder above the one it is started in."""
WITHOUT_CONTEXT: Final = frozenset({"--no-context-files", "-nc"})


class PiProvider(Provider):
    """Launch Pi with the protocol in its CLI form; nothing native has to be switched off."""

    name: ClassVar[str] = "pi"
    executable: ClassVar[str] = "pi"
    unknown_conversation: ClassVar[tuple[str, ...]] = ("No session found matching",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True,
        tools=Tools.CLI,
        modes=frozenset({Mode.STREAM, Mode.TERMINAL, Mode.PASSTHROUGH}),
    )

    def parse_version(self, output: str) -> str:
        """Return the version in what `pi --version` printed."""
        return SUPPORT.read(output)

    def files_to_read(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the files that appended texts come from, and the folders of extensions."""
        mine = appended_text.files_to_read(request, argv.parse(request.arguments))
        return (*mine, *extensions.files_to_read(request), *outer_home.paths(request, OUTER))

    def find_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find --session, --session-id, --fork, --continue and --resume."""
        return argv.native_resume(argv.parse(arguments))

    def opens_conversation(self, arguments: tuple[str, ...]) -> bool:
        """Say whether Pi does more than print something and leave."""
        return not argv.given(argv.parse(arguments), *argv.PRINTED)

    def resolve_resume(
        self, request: AgentRequest, named: NativeResume, facts: Facts
    ) -> NativeResume | tuple[str, ...] | None:
        """Find the session file that the arguments mean, and the id in its header."""
        del named
        items = argv.parse(request.arguments)
        return session_files.resolve(request, items, facts, Release.of(request.version))

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Compute Pi's arguments; the merged text is one more appended text."""
        del confirmed
        require_utf8_folder("Pi", request.cwd)
        items = argv.parse(request.arguments)
        release = Release.of(request.version)
        talk = conversation.choose_id(request, items, release, bound=grant is not None)
        added = [*_stream(request, items), *talk.words]
        others = (*talk.warnings, *_outer(request, facts, items))
        if grant is None:
            return LaunchPlan(
                argv=(*request.command, *added, *argv.words(talk.items)),
                framing=_framing(request.mode),
                native_id=talk.native_id,
                warnings=others,
            )
        _refuse_unbindable(request)
        instructions, warnings = _instructions(request, grant, facts, items, release)
        files: list[PlannedFile] = []
        added.extend((argv.APPEND, _textual(instructions, grant, files)))
        kept = argv.without(talk.items, argv.APPEND)
        return LaunchPlan(
            argv=(*request.command, *added, *argv.words(kept)),
            files=tuple(files),
            framing=_framing(request.mode),
            instructions=instructions,
            native_id=talk.native_id,
            warnings=(
                *SUPPORT.warnings(request.version),
                *warnings,
                *extensions.warnings(request, items, facts),
                *others,
            ),
        )

    def unknown_flag(self, request: AgentRequest, said: str) -> str:
        """Name the option of amux's own that Pi does not know."""
        return unknown_option.find(said, request.arguments)

    def transcripts(self, request: AgentRequest, native_id: str) -> Transcripts | None:
        """Name the session's file."""
        return transcript.locate(request, native_id)

    def read_transcript(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        """Read the prompt as Pi composed it, and what extensions put in."""
        return transcript.read_part(part)

    def handshake(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Ask for the session's id and the loaded extensions."""
        del request
        state = _ask(channel, "get_state")
        native_id = state.get("sessionId")
        found: tuple[Evidence, ...] = ()
        warnings: tuple[str, ...] = ()
        if grant is not None:
            commands = _ask(channel, "get_commands").get("commands")
            found, warnings = extensions.loaded_evidence(commands, plan)
        return Confirmed(
            evidence=found,
            instructions=plan.instructions,
            native_id=native_id if isinstance(native_id, str) else plan.native_id,
            warnings=warnings,
        )


def _refuse_unbindable(request: AgentRequest) -> None:
    """Raise UnsupportedVersion or BadArguments for what cannot have memory."""
    SUPPORT.require(request.version)
    unknown_option.refuse_version(f"Pi {request.version}", request.unknown)
    argv.refuse_subcommand(request.arguments)


def _outer(request: AgentRequest, facts: Facts, items: tuple[argv.Item, ...]) -> tuple[str, ...]:
    """Name another person's instructions above the folder, which Pi reads unless told not to."""
    if any(item.name in WITHOUT_CONTEXT for item in items):
        return ()
    return outer_home.warnings(outer_home.present_files(request, facts, OUTER)[:1])


def _instructions(
    request: AgentRequest,
    grant: Grant,
    facts: Facts,
    items: tuple[argv.Item, ...],
    release: Release,
) -> tuple[str, tuple[str, ...]]:
    if grant.instructions:
        own = argv.values(items, argv.APPEND)
        if all(text in grant.instructions for text in own):
            return grant.instructions, ()
        return grant.instructions, (
            "the session's frozen instructions are used; new append text is not",
        )
    texts, warnings = appended_text.texts(request, items, facts, release)
    protocol = grant.protocol
    if appended_text.has_other_amux(request, facts):
        protocol = protocol.replace("`amux memory", '`"$AMUX_CLI" memory')
        warnings = (
            *warnings,
            "Pi puts a folder with another `amux` first in PATH, so the protocol names $AMUX_CLI",
        )
    return "\n\n".join((*texts, protocol)), warnings


def _textual(text: str, grant: Grant, files: list[PlannedFile]) -> str:
    """Return the text itself, or a file's path where Pi could take it for one or it is too long."""
    if appended_text.cannot_be_file(text) and len(text.encode()) <= ARGUMENT_BYTES:
        return text
    files.append(PlannedFile(name=FILE, content=text.encode()))
    return posixpath.join(grant.config, FILE)


def _stream(request: AgentRequest, items: tuple[argv.Item, ...]) -> tuple[str, ...]:
    if request.mode is not Mode.STREAM:
        return ()
    modes = argv.values(items, argv.MODE)
    if not modes:
        return (argv.MODE, "rpc")
    if modes[-1] != "rpc":
        message = f"a stream needs `--mode rpc`, and the arguments say `--mode {modes[-1]}`"
        raise BadArguments(message)
    return ()


def _framing(mode: Mode) -> Framing:
    return Framing.JSON_LINES if mode is Mode.STREAM else Framing.RAW


def _ask(channel: Channel, command: str) -> JsonObject:
    """Send one RPC command and return its data; raise RequestRefused for an error."""
    identity = f"amux-{command}"
    channel.send({"id": identity, "type": command})
    others: list[JsonObject] = []
    while True:
        message = channel.receive(deadline=ANSWER_DEADLINE)
        if message.get("type") == "response" and message.get("id") == identity:
            break
        others.append(message)
    channel.put_back(others)
    if message.get("success") is not True:
        raise RequestRefused(command, number=0, answer=str(message.get("error")))
    data = message.get("data")
    return data if isinstance(data, dict) else {}
