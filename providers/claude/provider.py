"""The Claude Code provider: argument merging, plans, pre-flight and evidence put together."""

from __future__ import annotations

import hashlib
import json
import posixpath
from typing import TYPE_CHECKING, ClassVar, Final

from materializer.values import PlannedFile
from providers.base import (
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
from providers.claude import arguments as argv
from providers.claude import evidence, settings
from providers.claude.version import Release, read_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ARGUMENT_BYTES: Final = 131_071
STREAM_OPTIONS: Final = (
    (argv.PRINT, "--print"),
    ("--input-format", "--input-format=stream-json"),
    ("--output-format", "--output-format=stream-json"),
    ("--verbose", "--verbose"),
)
RESUMES: Final = (argv.RESUME, argv.CONTINUE, "--from-pr", "--teleport")
SETTLED_BY: Final = ("--setting-sources", "--managed-settings", "--restricted", "--safe-mode")
_PASSING: Final = (
    "_ SHLVL PWD OLDPWD TERM COLORTERM COLUMNS LINES WINDOWID TMUX TMUX_PANE STY SSH_TTY "
    "SSH_CLIENT SSH_CONNECTION SSH_AUTH_SOCK XDG_SESSION_ID GPG_TTY"
)
PASSING: Final = frozenset(_PASSING.split())


class ClaudeProvider(Provider):
    """Launch Claude Code with one merged append, auto memory off, and memory tools over MCP."""

    name: ClassVar[str] = "claude"
    executable: ClassVar[str] = "claude"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True,
        tools=Tools.MCP,
        modes=frozenset({Mode.STREAM, Mode.TERMINAL, Mode.PASSTHROUGH}),
    )

    def version(self, output: str) -> str:
        """Return the version in what `claude --version` printed."""
        return read_version(output)

    def questions(self, request: AgentRequest) -> tuple[str, ...]:
        """Name the files that the caller's arguments and Claude's own settings come from."""
        items = argv.parse(request.arguments)
        mine = [
            posixpath.join(request.cwd, value)
            for name in (argv.APPEND_FILE, argv.SUBAGENT_FILE)
            for value in argv.values(items, name)
        ]
        mine.extend(settings.files(argv.values(items, argv.SETTINGS), request.cwd))
        return (*mine, *_settings_files(request))

    def native_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find --resume, --continue and their like; the id is empty where Claude picks it."""
        items = argv.parse(arguments)
        for item in items:
            if item.name in RESUMES:
                found = item.values[0] if item.name == argv.RESUME and item.values else ""
                return NativeResume(native_id=found, fork=argv.given(items, argv.FORK))
        return None

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Compute Claude's arguments, environment and files; without a stream, ask first."""
        items = argv.parse(request.arguments)
        if grant is None:
            return _unbound(request, items)
        release = Release.of(request.version)
        release.require_bound()
        argv.refuse_subcommand(items)
        layers = settings.read(argv.values(items, argv.SETTINGS), cwd=request.cwd, facts=facts)
        if request.mode is not Mode.STREAM and confirmed is None:
            return _preflight(request, grant, facts, items, layers)
        return _bound(request, grant, facts, items, layers)

    def confirm(self, channel: Channel, request: AgentRequest, grant: Grant) -> Confirmed:
        """Ask the pre-flight's Claude for its effective settings."""
        del request, grant
        return Confirmed(evidence=(evidence.memory_off(channel),))

    def control(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Confirm auto memory off and the memory tools there, before the first turn."""
        del request
        found: tuple[Evidence, ...] = ()
        if grant is not None:
            found = (evidence.memory_off(channel), evidence.tools_loaded(channel))
        return Confirmed(evidence=found, instructions=plan.instructions, native_id=plan.native_id)

    def observe(self, message: JsonObject) -> tuple[Evidence, ...]:
        """Read the `init` event of each turn."""
        if message.get("type") == "system" and message.get("subtype") == "init":
            return evidence.initial(message)
        return ()


def _unbound(request: AgentRequest, items: tuple[argv.Item, ...]) -> LaunchPlan:
    items, session, native_id = _conversation(request, items)
    added = (*_stream(request, items), *session)
    return LaunchPlan(
        argv=(*request.command, *argv.compose(items, *added)),
        framing=_framing(request.mode),
        native_id=native_id,
    )


def _bound(
    request: AgentRequest,
    grant: Grant,
    facts: Facts,
    items: tuple[argv.Item, ...],
    layers: tuple[settings.Settings, ...],
) -> LaunchPlan:
    release = Release.of(request.version)
    warnings = list(release.warnings())
    if settings.turns_memory_on(layers):
        warnings.append("the caller's --settings turns auto memory on; a bound launch keeps it off")
    own = _texts(items, request, facts, argv.APPEND, argv.APPEND_FILE)
    if grant.instructions is None:
        instructions = "\n\n".join((*own, grant.protocol))
    else:
        instructions = grant.instructions
        if any(text not in instructions for text in own):
            warnings.append("the session's frozen instructions are used; new append text is not")
    files: list[PlannedFile] = []
    added = [*_stream(request, items)]
    added.append(_textual(argv.APPEND, argv.APPEND_FILE, instructions, grant, files))
    environment = {settings.SWITCH: settings.OFF}
    if release.subagent_append:
        texts = (*_texts(items, request, facts, argv.SUBAGENT, argv.SUBAGENT_FILE), grant.protocol)
        joined = "\n\n".join(texts)
        added.append(_textual(argv.SUBAGENT, argv.SUBAGENT_FILE, joined, grant, files))
    else:
        warnings.append(
            f"Claude {request.version} gives sub-agents the memory tools, not the protocol"
        )
    if release.snapshot:
        added.append(f"{argv.SNAPSHOT}=off")
    added.append(_settings_argument(layers, grant, files))
    files.append(PlannedFile(name="mcp.json", content=_mcp_config(grant)))
    added.append(f"{argv.MCP_CONFIG}={posixpath.join(grant.config, 'mcp.json')}")
    added.append(f"{argv.ALLOWED}=mcp__{evidence.SERVER}")
    kept, session, native_id = _conversation(request, items)
    kept = argv.without(
        kept,
        argv.APPEND,
        argv.APPEND_FILE,
        argv.SUBAGENT,
        argv.SUBAGENT_FILE,
        argv.SNAPSHOT,
        argv.SETTINGS,
    )
    return LaunchPlan(
        argv=(*request.command, *argv.compose(kept, *added, *session)),
        environment=tuple(environment.items()),
        files=tuple(files),
        framing=_framing(request.mode),
        instructions=instructions,
        native_id=native_id,
        warnings=tuple(warnings),
    )


def _preflight(
    request: AgentRequest,
    grant: Grant,
    facts: Facts,
    items: tuple[argv.Item, ...],
    layers: tuple[settings.Settings, ...],
) -> Preflight:
    asked = settings.merged((*layers, settings.OFF_SETTINGS, {"disableAllHooks": True}))
    settling = [word for item in items if item.name in SETTLED_BY for word in item.words]
    files: list[PlannedFile] = []
    argument = _settings_file(asked, grant, files, name="preflight.json")
    return Preflight(
        argv=(
            *request.command,
            *(option for _, option in STREAM_OPTIONS),
            "--no-session-persistence",
            "--strict-mcp-config",
            argument,
            *settling,
        ),
        environment=((settings.SWITCH, settings.OFF),),
        framing=Framing.JSON_LINES,
        files=tuple(files),
        remember=_digest(
            [
                request.command,
                request.version,
                request.cwd,
                request.home,
                settling,
                asked,
                _lasting(request.environment, grant),
                {path: _hash(facts.files.get(path)) for path in _settings_files(request)},
            ]
        ),
    )


def _conversation(
    request: AgentRequest, items: tuple[argv.Item, ...]
) -> tuple[tuple[argv.Item, ...], tuple[str, ...], str | None]:
    """Return the items, the words that name the conversation, and its id where it is known."""
    named = argv.values(items, argv.SESSION_ID)
    if request.resume is None:
        if argv.given(items, *RESUMES):
            resumed = argv.values(items, argv.RESUME)
            known = not argv.given(items, argv.FORK) and resumed
            return items, (), named[-1] if named else (resumed[0] if known else None)
        if named or not request.fresh_id:
            return items, (), named[-1] if named else None
        return items, (f"{argv.SESSION_ID}={request.fresh_id}",), request.fresh_id
    kept = argv.without(items, *RESUMES, argv.FORK)
    words = [f"{argv.RESUME}={request.resume.native_id}"]
    if not request.resume.fork:
        kept = argv.without(kept, argv.SESSION_ID)
        return kept, tuple(words), request.resume.native_id
    words.append(argv.FORK)
    if named or not request.fresh_id:
        return kept, tuple(words), named[-1] if named else None
    return kept, (*words, f"{argv.SESSION_ID}={request.fresh_id}"), request.fresh_id


def _stream(request: AgentRequest, items: tuple[argv.Item, ...]) -> tuple[str, ...]:
    if request.mode is not Mode.STREAM:
        return ()
    return tuple(option for name, option in STREAM_OPTIONS if not argv.given(items, name))


def _framing(mode: Mode) -> Framing:
    return Framing.JSON_LINES if mode is Mode.STREAM else Framing.RAW


def _texts(
    items: tuple[argv.Item, ...], request: AgentRequest, facts: Facts, inline: str, file: str
) -> tuple[str, ...]:
    """Return the caller's texts of one kind, in the order given."""
    texts: list[str] = []
    for item in items:
        if item.name == inline:
            texts.extend(item.values)
        elif item.name == file:
            for value in item.values:
                path = posixpath.join(request.cwd, value)
                content = facts.files.get(path)
                if content is None:
                    raise argv.unreadable(file, path)
                texts.append(content.decode("utf-8", errors="replace"))
    return tuple(text for text in texts if text)


def _textual(inline: str, file: str, text: str, grant: Grant, files: list[PlannedFile]) -> str:
    """Return one argument that carries the text, by way of a file where it is too long."""
    argument = f"{inline}={text}"
    if len(argument.encode()) <= ARGUMENT_BYTES:
        return argument
    name = f"{inline.lstrip('-')}.md"
    files.append(PlannedFile(name=name, content=text.encode()))
    return f"{file}={posixpath.join(grant.config, name)}"


def _settings_argument(
    layers: tuple[settings.Settings, ...], grant: Grant, files: list[PlannedFile]
) -> str:
    merged = settings.merged((*layers, settings.OFF_SETTINGS))
    if not layers:
        return f"{argv.SETTINGS}={settings.text(merged)}"
    return _settings_file(merged, grant, files, name="settings.json")


def _settings_file(
    merged: settings.Settings, grant: Grant, files: list[PlannedFile], *, name: str
) -> str:
    """Put settings into a file of the run: the caller's may hold secrets."""
    files.append(PlannedFile(name=name, content=settings.text(merged).encode()))
    return f"{argv.SETTINGS}={posixpath.join(grant.config, name)}"


def _mcp_config(grant: Grant) -> bytes:
    server = {
        "type": "stdio",
        "command": grant.cli[0],
        "args": [*grant.cli[1:], "mcp"],
        "env": {"AMUX_CONNECTION": grant.connection, "AMUX_MEMORY_BINDING": grant.binding},
        "alwaysLoad": True,
    }
    return json.dumps({"mcpServers": {evidence.SERVER: server}}, ensure_ascii=False).encode()


def _settings_files(request: AgentRequest) -> tuple[str, ...]:
    """Name the settings files that the agent reads on its own."""
    user = request.environment.get("CLAUDE_CONFIG_DIR") or posixpath.join(request.home, ".claude")
    return (
        posixpath.join(user, "settings.json"),
        posixpath.join(user, "remote-settings.json"),
        posixpath.join(request.cwd, ".claude", "settings.json"),
        posixpath.join(request.cwd, ".claude", "settings.local.json"),
        settings.MANAGED,
    )


def _lasting(environment: Mapping[str, str], grant: Grant) -> list[tuple[str, str]]:
    """Return the environment less what differs from run to run and cannot matter."""
    kept: dict[str, str] = {}
    for name, value in environment.items():
        if name in PASSING or name.startswith("AMUX_"):
            continue
        kept[name] = _without_run(value, grant) if name == "PATH" else value
    return sorted(kept.items())


def _without_run(path: str, grant: Grant) -> str:
    return ":".join(folder for folder in path.split(":") if not folder.startswith(grant.config))


def _hash(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _digest(parts: Iterable[object]) -> str:
    source = json.dumps(list(parts), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(source.encode()).hexdigest()
