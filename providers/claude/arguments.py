"""Claude's own command line, read as the agent's parser (commander) reads it.

A required value is the next word whatever it is; an optional one only if it does not begin with
a dash; a variadic option takes words until one begins with a dash, and none after `--flag=value`.
Short options cluster (`-pc`), the last with its value attached (`-rID`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from amux.providers.errors import BadArguments

APPEND: Final = "--append-system-prompt"
APPEND_FILE: Final = "--append-system-prompt-file"
SUBAGENT: Final = "--append-subagent-system-prompt"
SUBAGENT_FILE: Final = "--append-subagent-system-prompt-file"
SNAPSHOT: Final = "--system-prompt-snapshot"
SETTINGS: Final = "--settings"
MCP_CONFIG: Final = "--mcp-config"
ALLOWED: Final = "--allowedTools"
DISALLOWED: Final = "--disallowedTools"
TEAMMATES: Final = "--teammate-mode"
SESSION_ID: Final = "--session-id"
RESUME: Final = "--resume"
CONTINUE: Final = "--continue"
FORK: Final = "--fork-session"
PRINT: Final = "--print"
SDK_URL: Final = "--sdk-url"
END: Final = "--"
PRINTED: Final = ("--help", "--version")
"""Options with which Claude prints and leaves."""


class Arity(Enum):
    """How many words an option takes."""

    FLAG = 0
    REQUIRED = 1
    OPTIONAL = 2
    VARIADIC = 3


_REQUIRED: Final = (
    "--advisor --agent --agent-color --agent-id --agent-name --agent-type --agents "
    "--append-subagent-system-prompt --append-subagent-system-prompt-file --append-system-prompt "
    "--append-system-prompt-file --autocompact --client-data-url --debug-file "
    "--deep-link-last-fetch --deep-link-repo --effort --environment --fallback-model "
    "--fast-mode --inherit-permission-mode --input-format --json-schema --managed-settings "
    "--max-budget-usd --max-thinking-tokens --max-turns --messaging-socket-path --model --name "
    "--output-format --parent-session-id --permission-mode --permission-prompt-tool "
    "--permission-prompts --plan-mode-instructions --plugin-dir --plugin-dir-no-mcp --plugin-url "
    "--prefill --proactivity --remote-control-session-name-prefix --resume-drops-turn "
    "--resume-session-at --rewind-files --sdk-url --session-id --setting-sources --settings "
    "--system-prompt --system-prompt-file --system-prompt-snapshot --task-budget --team-name "
    "--teammate-mode --thinking --thinking-display --workload"
)
_OPTIONAL: Final = (
    "--cloud --debug --from-pr --prompt-suggestions --rc --remote --remote-control --resume "
    "--teleport --worktree"
)
_VARIADIC: Final = (
    "--add-dir --allowedTools --betas --channels --dangerously-load-development-channels "
    "--disallowedTools --file --mcp-config --tools"
)
ARITY: Final = (
    dict.fromkeys(_REQUIRED.split(), Arity.REQUIRED)
    | dict.fromkeys(_OPTIONAL.split(), Arity.OPTIONAL)
    | dict.fromkeys(_VARIADIC.split(), Arity.VARIADIC)
)
ALIASES: Final = {
    "--allowed-tools": ALLOWED,
    "--disallowed-tools": DISALLOWED,
    "-p": PRINT,
    "-c": CONTINUE,
    "-r": RESUME,
    "-n": "--name",
    "-d": "--debug",
    "-w": "--worktree",
    "-h": "--help",
    "-v": "--version",
}
ELSEWHERE: Final = frozenset(
    ["--bg", "--background", "--cloud", "--remote", "--desktop", "--environment"]
)
"""Options with which the conversation is another process's, or another machine's."""
_COMMANDS: Final = (
    "agents attach auth auto-mode config daemon doctor gateway import install kill logs mcp "
    "migrate-installer plugin plugins project purge remote-control respawn rm setup-token stop "
    "ultrareview update upgrade"
)
COMMANDS: Final = frozenset(_COMMANDS.split())


@dataclass(frozen=True, slots=True)
class Item:
    """One option with its values, one positional word (name None), or `--` and what follows.

    `words` are the words as they were given.
    """

    name: str | None
    values: tuple[str, ...]
    words: tuple[str, ...]


def parse(arguments: tuple[str, ...]) -> tuple[Item, ...]:
    """Split the caller's arguments into items; their words, in order, are the arguments again."""
    items: list[Item] = []
    queue = deque(arguments)
    while queue:
        word = queue.popleft()
        if word == END:
            rest = tuple(queue)
            items.append(Item(END, rest, (END, *rest)))
            break
        if not _dashed(word):
            items.append(Item(None, (word,), (word,)))
        elif word.startswith("--"):
            items.append(_long(word, queue))
        else:
            items.append(_short(word, queue))
    return tuple(items)


def values(items: tuple[Item, ...], name: str) -> tuple[str, ...]:
    """Return every value that was given for one option, in order."""
    return tuple(value for item in items if item.name == name for value in item.values)


def given(items: tuple[Item, ...], *names: str | None) -> bool:
    """Say whether one of the options, or for None a positional word, was given."""
    return any(item.name in names for item in items)


def without(items: tuple[Item, ...], *names: str) -> tuple[Item, ...]:
    """Return the items less those of the named options."""
    return tuple(item for item in items if item.name not in names)


def command(items: tuple[Item, ...]) -> str | None:
    """Return the subcommand, if the first positional word is one."""
    for item in items:
        if item.name is None:
            return item.values[0] if item.values[0] in COMMANDS else None
    return None


def refuse_without_conversation(items: tuple[Item, ...]) -> None:
    """Raise BadArguments where the arguments start no conversation here that could be bound."""
    found = command(items)
    if found is not None:
        message = f"`claude {found}` starts no conversation; run it without amux"
        raise BadArguments(message)
    if given(items, SDK_URL):
        message = (
            f"with {SDK_URL} Claude is driven over the network, where amux cannot hold what it is "
            "asked; drive it over stdio, or from Python with LaunchRequest(mode=Mode.STREAM)"
        )
        raise BadArguments(message)
    for item in items:
        if item.name in ELSEWHERE:
            message = f"with {item.name} the conversation runs elsewhere; start it without amux"
            raise BadArguments(message)


def unreadable(option: str, path: str) -> BadArguments:
    """Return the error for a file that an option names and that is not there."""
    return BadArguments(f"{option} names {path}, which is not a file under 1 MiB that can be read")


def compose(items: tuple[Item, ...], *added: str) -> tuple[str, ...]:
    """Return the items' words with `added` after the options, before a `--` if there is one."""
    options = [word for item in items if item.name != END for word in item.words]
    end = [word for item in items if item.name == END for word in item.words]
    return (*options, *added, *end)


def _dashed(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _long(word: str, queue: deque[str]) -> Item:
    name, equals, attached = word.partition("=")
    name = ALIASES.get(name, name)
    if equals:
        return Item(name, (attached,), (word,))
    taken = _take(ARITY.get(name, Arity.FLAG), queue)
    return Item(name, taken, (word, *taken))


def _short(word: str, queue: deque[str]) -> Item:
    flag, attached = word[:2], word[2:]
    name = ALIASES.get(flag, flag)
    arity = ARITY.get(name, Arity.FLAG)
    if not attached:
        taken = _take(arity, queue)
        return Item(name, taken, (word, *taken))
    if arity is Arity.FLAG and flag in ALIASES:
        queue.appendleft(f"-{attached}")
        return Item(name, (), (flag,))
    return Item(name, (attached,) if arity is not Arity.FLAG else (), (word,))


def _take(arity: Arity, queue: deque[str]) -> tuple[str, ...]:
    taken: list[str] = []
    if queue and (arity is Arity.REQUIRED or arity is Arity.VARIADIC):
        taken.append(queue.popleft())
    if arity is Arity.VARIADIC:
        while queue and not _dashed(queue[0]):
            taken.append(queue.popleft())
    if arity is Arity.OPTIONAL and queue and not _dashed(queue[0]):
        taken.append(queue.popleft())
    return tuple(taken)
