"""Pi's own command line, read as Pi reads it.

A value is the next word, never attached with `=`. `--print` takes a following word as the
message unless it begins with `@` or a dash (three dashes are text).
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from dataclasses import dataclass
from typing import Final

from amux.providers.base import NativeResume
from amux.providers.errors import BadArguments

APPEND: Final = "--append-system-prompt"
MODE: Final = "--mode"
SESSION: Final = "--session"
SESSION_ID: Final = "--session-id"
SESSION_DIR: Final = "--session-dir"
NO_SESSION: Final = "--no-session"
FORK: Final = "--fork"
CONTINUE: Final = "--continue"
RESUME: Final = "--resume"
PRINT: Final = "--print"
APPROVE: Final = "--approve"
NO_APPROVE: Final = "--no-approve"
END: Final = "--"
PRINTED: Final = ("--help", "--version", "--list-models", "--export")
"""Options with which Pi prints or writes something and leaves."""

ALIASES: Final = {
    "-p": PRINT,
    "-c": CONTINUE,
    "-r": RESUME,
    "-n": "--name",
    "-t": "--tools",
    "-xt": "--exclude-tools",
    "-e": "--extension",
    "-a": APPROVE,
    "-na": NO_APPROVE,
    "-h": "--help",
    "-v": "--version",
}
_VALUED: Final = (
    "--mode --provider --model --api-key --system-prompt --append-system-prompt --name --session "
    "--session-id --fork --session-dir --models --tools --exclude-tools --thinking --export "
    "--extension --skill --prompt-template --theme --use-theme --tui-mode"
)
VALUED: Final = frozenset(_VALUED.split())
COMMANDS: Final = frozenset(["install", "remove", "uninstall", "update", "list", "config", "auth"])
CONVERSATION: Final = (SESSION, SESSION_ID, FORK, CONTINUE, RESUME)
LATEST: Final = "(the latest one)"
"""What stands for the id of a conversation that only its files tell."""
_SESSION_FILE: Final = re.compile(r"\A[0-9TZ-]+_(.+)\.jsonl\Z")


@dataclass(frozen=True, slots=True)
class Item:
    """One option with its value, one message word (name None), or `--` and what follows."""

    name: str | None
    value: str | None
    words: tuple[str, ...]


def parse(arguments: tuple[str, ...]) -> tuple[Item, ...]:
    """Split the caller's arguments into items; their words, in order, are the arguments again."""
    items: list[Item] = []
    queue = deque(arguments)
    while queue:
        word = queue.popleft()
        name = ALIASES.get(word, word)
        if word == END:
            items.append(Item(END, None, (END, *queue)))
            break
        if name in VALUED and queue:
            value = queue.popleft()
            items.append(Item(name, value, (word, value)))
        elif name == PRINT and queue and _is_message(queue[0]):
            value = queue.popleft()
            items.append(Item(PRINT, value, (word, value)))
        elif word.startswith("-"):
            items.append(Item(name, None, (word,)))
        else:
            items.append(Item(None, word, (word,)))
    return tuple(items)


def values(items: tuple[Item, ...], name: str) -> tuple[str, ...]:
    """Return every value that was given for one option, in order."""
    return tuple(item.value for item in items if item.name == name and item.value is not None)


def given(items: tuple[Item, ...], *names: str) -> bool:
    """Say whether one of the options was given."""
    return any(item.name in names for item in items)


def without(items: tuple[Item, ...], *names: str) -> tuple[Item, ...]:
    """Return the items less those of the named options."""
    return tuple(item for item in items if item.name not in names)


def words(items: tuple[Item, ...]) -> tuple[str, ...]:
    """Return the items as arguments again."""
    return tuple(word for item in items for word in item.words)


def refuse_subcommand(arguments: tuple[str, ...]) -> None:
    """Raise BadArguments where the arguments start no conversation."""
    if arguments and arguments[0] in COMMANDS:
        message = f"`pi {arguments[0]}` starts no conversation; run it without amux"
        raise BadArguments(message)


def native_resume(items: tuple[Item, ...]) -> NativeResume | None:
    """Find the conversation that the arguments continue.

    Its id is LATEST where Pi takes the latest, and empty where a person picks one on the screen.
    """
    found = deciding_option(items)
    if found is None:
        return None
    if found.name == RESUME:
        return NativeResume(native_id="")
    if found.value is None:
        return NativeResume(native_id=LATEST)
    name = posixpath.basename(found.value)
    place = found.value if found.value != name or name.endswith(".jsonl") else ""
    return NativeResume(
        native_id=conversation_id(found.value), fork=found.name == FORK, place=place
    )


def deciding_option(items: tuple[Item, ...]) -> Item | None:
    """Return the option that names the conversation; Pi looks at them in this order."""
    if given(items, NO_SESSION):
        return None
    for name in (FORK, SESSION, RESUME, CONTINUE, SESSION_ID):
        found = [one for one in items if one.name == name]
        if found and (found[-1].value is not None or name in {RESUME, CONTINUE}):
            return found[-1]
    return None


def conversation_id(value: str) -> str:
    """Return the id in the name of a session file, or the value itself."""
    found = _SESSION_FILE.search(posixpath.basename(value))
    return found[1] if found else value


def _is_message(word: str) -> bool:
    return not word.startswith("@") and (not word.startswith("-") or word.startswith("---"))
