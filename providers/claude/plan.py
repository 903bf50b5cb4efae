"""Claude's command line for one launch: the caller's arguments, merged with what memory needs."""

from __future__ import annotations

import json
import posixpath
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amux.materializer.values import PlannedFile
from amux.providers.base import MAX_FACT_BYTES, Framing, LaunchPlan, Mode
from amux.providers.claude import arguments as argv
from amux.providers.claude import (
    conversation,
    injected_text,
    native_memory,
    settings,
    settings_sources,
    tools,
)
from amux.providers.claude.transcript import READ_BEFORE
from amux.providers.claude.version import SUPPORT, Release
from amux.providers.errors import BadArguments, require_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import AgentRequest, Facts, Grant

ARGUMENT_BYTES: Final = 131_071
"""The kernel's limit for one argument, less its final zero."""
STREAM: Final = (
    (argv.PRINT, "--print"),
    ("--input-format", "--input-format=stream-json"),
    ("--output-format", "--output-format=stream-json"),
    ("--verbose", "--verbose"),
)
TEXTS: Final = (argv.APPEND, argv.APPEND_FILE, argv.SUBAGENT, argv.SUBAGENT_FILE)
HOOK_FILE: Final = "subagent-start.json"
NOT_FORKS: Final = "^(?!fork$)"
"""A fork has its parent's system prompt, and so the protocol already."""
MERGED: Final = (*TEXTS, argv.SNAPSHOT, argv.SETTINGS, argv.TEAMMATES)
"""The caller's options that one option of ours takes the place of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What the caller gave: arguments as items, and each `--settings` as it was read."""

    request: AgentRequest
    facts: Facts
    items: tuple[argv.Item, ...]
    layers: tuple[settings.Settings, ...]

    def texts(self, inline: str, file: str) -> tuple[str, ...]:
        """Return the texts of one kind, in the order given; raise BadArguments."""
        texts: list[str] = []
        for item in self.items:
            if item.name == inline:
                texts.extend(require_utf8(inline, value) for value in item.values)
            elif item.name == file:
                texts.extend(self._content(file, value) for value in item.values)
        return tuple(text for text in texts if text)

    def _content(self, option: str, value: str) -> str:
        path = posixpath.join(self.request.cwd, value)
        content = self.facts.files.get(path)
        if content is None or len(content) >= MAX_FACT_BYTES:
            raise argv.unreadable(option, path)
        return content.decode("utf-8", errors="replace")


@dataclass(slots=True)
class Draft:
    """A plan as it grows: words, files and warnings."""

    config: str
    words: list[str] = field(default_factory=list)
    files: list[PlannedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def text(self, inline: str, file: str, text: str) -> None:
        """Add an argument that carries the text, by way of a file where it is too long."""
        argument = f"{inline}={text}"
        if len(argument.encode()) <= ARGUMENT_BYTES:
            self.words.append(argument)
        else:
            self.file(file, f"{inline.lstrip('-')}.md", text.encode())

    def file(self, option: str, name: str, content: bytes) -> None:
        """Add a file of the run, and the argument that names it."""
        self.files.append(PlannedFile(name=name, content=content))
        self.words.append(f"{option}={posixpath.join(self.config, name)}")


def without_memory(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> LaunchPlan:
    """Start Claude as the caller's arguments say, under an id that a resume can name."""
    talk = conversation.choose_id(request, items, bound=False)
    words = argv.compose(talk.items, *_stream(request, items), *talk.words)
    return LaunchPlan(
        argv=(*request.command, *words),
        framing=_framing(request),
        native_id=talk.native_id,
        warnings=injected_text.outer(request, facts),
    )


def with_memory(caller: Caller, grant: Grant) -> LaunchPlan:
    """Start Claude with one merged append, auto memory off, and the memory tools."""
    request = caller.request
    draft = Draft(grant.config)
    draft.words.extend(_stream(request, caller.items))
    draft.warnings.extend(SUPPORT.warnings(request.version))
    instructions = _instructions(caller, grant, draft)
    draft.text(argv.APPEND, argv.APPEND_FILE, instructions)
    added = _reach_subagents(caller, grant, draft)
    _fixed_options(caller, draft)
    _settings(caller, added, draft)
    draft.files.append(PlannedFile(name=tools.FILE, content=tools.mcp_config(grant)))
    draft.words.extend(tools.arguments_for(grant))
    draft.warnings.extend(tools.warnings(request, caller.items, caller.facts, caller.layers))
    draft.warnings.extend(_other_texts(caller))
    talk = conversation.choose_id(request, caller.items, bound=True)
    kept = argv.without(talk.items, *MERGED)
    return LaunchPlan(
        argv=(*request.command, *argv.compose(kept, *draft.words, *talk.words)),
        environment=((settings.SWITCH, settings.OFF),),
        files=tuple(draft.files),
        framing=_framing(request),
        driven=_is_driven(request, caller.items),
        instructions=instructions,
        native_id=talk.native_id,
        warnings=tuple(draft.warnings),
    )


def _fixed_options(caller: Caller, draft: Draft) -> None:
    """Add the options whose value memory decides, and say where the caller asked for another."""
    if Release.of(caller.request.version).snapshot:
        draft.words.append(f"{argv.SNAPSHOT}=off")
    if any(value != "off" for value in argv.values(caller.items, argv.SNAPSHOT)):
        draft.warnings.append(
            f"with memory {argv.SNAPSHOT} stays off: a snapshot outlives the text"
        )
    if any(value != settings.IN_PROCESS for value in argv.values(caller.items, argv.TEAMMATES)):
        draft.warnings.append(
            "with memory teammates run in this Claude: in panes they would be without the protocol "
            "and outlive the run"
        )


def _other_texts(caller: Caller) -> Iterator[str]:
    """Say which other text may be in the conversation, and what may be missing from it."""
    request, items, facts = caller.request, caller.items, caller.facts
    yield from injected_text.warnings(request, items, facts, caller.layers)
    if request.resume is None:
        yield from native_memory.unread_notice(request, facts, caller.layers)
    if not settings_sources.outer_excludes(request):
        yield from injected_text.outer(request, facts)
    if request.mode is Mode.TERMINAL and _is_prompted(items):
        yield (
            "on its screen Claude sends a prompt of the command line before it has loaded the "
            "memory tools; what is typed later has them"
        )
    if request.resume is None and conversation.native_resume(items) is not None:
        yield (
            "the conversation is picked in Claude, so amux cannot know it: one that began without "
            "amux keeps what Claude's own memory put into it, and amux resume cannot return to it"
        )
    search = conversation.memory_search(request)
    if search is not None and search in facts.found:
        yield READ_BEFORE


def _instructions(caller: Caller, grant: Grant, draft: Draft) -> str:
    """Merge the caller's appends and the protocol, or take the text that the session froze."""
    own = caller.texts(argv.APPEND, argv.APPEND_FILE)
    if not grant.instructions:
        return "\n\n".join((*own, grant.protocol))
    if any(text not in grant.instructions for text in own):
        draft.warnings.append(
            "the session keeps the text it began with; new append text is not sent"
        )
    return grant.instructions


def appends_for_subagents(request: AgentRequest, items: tuple[argv.Item, ...]) -> bool:
    """Say whether an option reaches sub-agents: there must be one, and the screen ignores it."""
    on_screen = request.mode is Mode.TERMINAL and not argv.given(items, argv.PRINT)
    return Release.of(request.version).subagent_append and not on_screen


def _reach_subagents(caller: Caller, grant: Grant, draft: Draft) -> tuple[settings.Settings, ...]:
    """Send sub-agents the protocol: by an option or, where that does not reach them, by a hook."""
    own = caller.texts(argv.SUBAGENT, argv.SUBAGENT_FILE)
    text = "\n\n".join((*own, grant.protocol))
    if appends_for_subagents(caller.request, caller.items):
        draft.text(argv.SUBAGENT, argv.SUBAGENT_FILE, text)
        return ()
    said = {"hookEventName": "SubagentStart", "additionalContext": text}
    content = json.dumps({"hookSpecificOutput": said}, ensure_ascii=False)
    draft.files.append(PlannedFile(name=HOOK_FILE, content=content.encode()))
    path = posixpath.join(grant.config, HOOK_FILE)
    hook = {"type": "command", "command": f"cat {shlex.quote(path)}"}
    return ({"hooks": {"SubagentStart": [{"matcher": NOT_FORKS, "hooks": [hook]}]}},)


def _settings(caller: Caller, added: tuple[settings.Settings, ...], draft: Draft) -> None:
    added = (*added, settings_sources.outer_excludes(caller.request))
    merged = settings.merged((*caller.layers, *added, settings.OFF_SETTINGS, settings.HERE))
    asked = ({"env": caller.request.environment}, *caller.layers)
    if settings.turns_memory_on(asked):
        draft.warnings.append(
            "the caller's settings or environment switch Claude's own memory on; it stays off"
        )
    if caller.layers:  # they may hold secrets, which do not belong into argv
        draft.file(argv.SETTINGS, "settings.json", settings.text(merged).encode())
    else:
        draft.words.append(f"{argv.SETTINGS}={settings.text(merged)}")


def _is_prompted(items: tuple[argv.Item, ...]) -> bool:
    return argv.given(items, None) and not argv.given(items, argv.PRINT)


def _stream(request: AgentRequest, items: tuple[argv.Item, ...]) -> tuple[str, ...]:
    if request.mode is not Mode.STREAM:
        return ()
    for name in ("--input-format", "--output-format"):
        if any(value != "stream-json" for value in argv.values(items, name)):
            message = f"a stream needs {name}=stream-json, and the arguments say another"
            raise BadArguments(message)
    return tuple(option for name, option in STREAM if not argv.given(items, name))


def _framing(request: AgentRequest) -> Framing:
    return Framing.JSON_LINES if request.mode is Mode.STREAM else Framing.RAW


def _is_driven(request: AgentRequest, items: tuple[argv.Item, ...]) -> bool:
    """Say whether a program of the caller's drives Claude over the stdio that it is given."""
    return request.mode is not Mode.STREAM and "stream-json" in argv.values(items, "--input-format")
