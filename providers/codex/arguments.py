"""The caller's own arguments for Codex: what they ask for, and how they join a bound launch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.providers.base import NativeResume
from amux.providers.codex.flags import toml_literal
from amux.providers.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

RESUMES: Final = frozenset({"resume", "fork"})
EXEC: Final = frozenset({"exec", "e"})
LAST: Final = "--last"

_CONFIG: Final = frozenset({"-c", "--config"})
_FEATURES: Final = frozenset({"--enable", "--disable"})
_AS_CONFIG: Final = {
    "-m": "model",
    "--model": "model",
    "-s": "sandbox_mode",
    "--sandbox": "sandbox_mode",
    "-a": "approval_policy",
    "--ask-for-approval": "approval_policy",
}
_TAKES_VALUE: Final = frozenset(
    {
        *_CONFIG,
        *_FEATURES,
        *_AS_CONFIG,
        *("-C", "--cd", "-p", "--profile", "-i", "--image", "-o", "--output-last-message"),
        *("--remote", "--remote-auth-token-env", "--local-provider", "--add-dir", "--color"),
        *("--output-schema", "--thread-source", "--cyber-access-program"),
    }
)
_OTHER_COMMANDS: Final = frozenset(
    {
        *("agents", "review", "login", "logout", "mcp", "plugin", "mcp-server", "app-server"),
        *("remote-control", "completion", "update", "doctor", "sandbox", "debug", "apply", "a"),
        *("queue", "archive", "delete", "unarchive", "migrate-rollouts", "migrate-nfs-db"),
        *("cloud", "exec-server", "features", "help"),
    }
)
_PRINTED: Final = frozenset({"-h", "--help", "-V", "--version"})
_REFUSED: Final = {
    "--remote": "amux gives the screen a server of its own",
    "-C": "choose the folder with amux's own --cwd",
    "--cd": "choose the folder with amux's own --cwd",
    "-p": "a profile's settings cannot be confirmed; put them into -c",
    "--profile": "a profile's settings cannot be confirmed; put them into -c",
    "--ignore-user-config": "what it leaves out cannot be confirmed; give another CODEX_HOME",
    "--worktree": "make the worktree first, and choose it with amux's own --cwd",
    "--oss": "choose the provider with -c model_provider=NAME",
    "--local-provider": "choose the provider with -c model_provider=NAME",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One option with its value, or one word that stands alone; `texts` as it was written."""

    texts: tuple[str, ...]
    option: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerArguments:
    """The caller's arguments, read. `rest` is what follows `--`, with it."""

    words: tuple[Word, ...]
    rest: tuple[str, ...]

    @property
    def plain(self) -> tuple[str, ...]:
        """Return the words that belong to no option."""
        return tuple(word.texts[0] for word in self.words if word.option is None)

    @property
    def executes(self) -> bool:
        """Say whether this is `codex exec`."""
        return bool(self.plain) and self.plain[0] in EXEC

    @property
    def resume(self) -> NativeResume | None:
        """Return the native conversation that is continued or forked."""
        plain = self.plain[1:] if self.executes else self.plain
        if not plain or plain[0] not in RESUMES:
            return None
        unnamed = len(plain) == 1 or self.last
        if unnamed and self.executes and not self.last:
            return None  # a prompt of one word, or a new conversation: there is no picker
        return NativeResume(native_id="" if unnamed else plain[1], fork=plain[0] == "fork")

    @property
    def converses(self) -> bool:
        """Say whether Codex does more than print its help or version and leave."""
        printing = any(word.option in _PRINTED for word in self.words)
        return not printing and not (self.executes and self.plain[1:2] == ("help",))

    @property
    def last(self) -> bool:
        """Say whether the conversation that was changed last is meant."""
        return self.has(LAST)

    def has(self, option: str) -> bool:
        """Say whether an option is among the arguments."""
        return any(word.option == option for word in self.words)

    @property
    def enables(self) -> bool:
        """Say whether a feature is switched on with --enable."""
        return self.has("--enable")

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of Codex's configuration that are set."""
        found = {_AS_CONFIG[word.option] for word in self.words if word.option in _AS_CONFIG}
        for word in self.words:
            if word.option in _CONFIG and word.value is not None:
                found.add(word.value.partition("=")[0].strip())
            elif word.option in _FEATURES:
                found.add(f"features.{word.value}")
        return frozenset(found)

    @property
    def instructions(self) -> str | None:
        """Return the developer instructions that the caller set with -c; the last one counts."""
        found = None
        for word in self.words:
            if word.option in _CONFIG and word.value is not None:
                name, _, text = word.value.partition("=")
                if name.strip() == "developer_instructions":
                    found = _toml_or_raw(text.strip())
        return found

    def overrides(self) -> tuple[str, ...]:
        """Return what a server beside the agent needs to hear: configuration and features."""
        kept: list[str] = []
        for word in self.words:
            if word.option in _CONFIG or word.option in _FEATURES:
                kept += word.texts
            elif word.option in _AS_CONFIG and word.value is not None:
                kept += ["-c", f"{_AS_CONFIG[word.option]}={toml_literal(word.value)}"]
        return tuple(kept)

    def ending_with(self, ours: Sequence[str]) -> tuple[str, ...]:
        """Return the caller's words, then ours, which so win, before a `--` of the caller."""
        theirs = tuple(text for word in self.words for text in word.texts)
        return (*theirs, *ours, *self.rest)

    def resuming(self, resume: NativeResume | None) -> CallerArguments:
        """Return the same arguments, naming the conversation that a session resumes by its id."""
        if resume is None or not resume.native_id:
            return self
        if self.resume is not None:
            return self._by_id(resume.native_id)
        verb = Word(texts=("fork" if resume.fork else "resume",))
        named = (verb, Word(texts=(resume.native_id,)))
        place = 0
        if self.executes:
            place = next(i for i, word in enumerate(self.words) if word.option is None) + 1
        words = (*self.words[:place], *named, *self.words[place:])
        return CallerArguments(words=words, rest=self.rest)

    def _by_id(self, native_id: str) -> CallerArguments:
        """Put the id where `--last` or a name stands."""
        place = next(
            i
            for i, word in enumerate(self.words)
            if word.option is None and word.texts[0] in RESUMES
        )
        rest = [word for word in self.words[place + 1 :] if word.option != LAST]
        if not self.last:
            rest.remove(next(word for word in rest if word.option is None))
        named = Word(texts=(native_id,))
        words = (*self.words[: place + 1], named, *rest)
        return CallerArguments(words=words, rest=self.rest)

    def check_screen(self) -> None:
        """Refuse what a bound launch cannot carry; raise BadArguments that says what to do."""
        for word in self.words:
            if word.option in _REFUSED:
                raise BadArguments(
                    f"codex {word.option} cannot be used in a launch with memory: "
                    f"{_REFUSED[word.option]}"
                )
        if self.plain and self.plain[0] in _OTHER_COMMANDS:
            raise BadArguments(
                f"`codex {self.plain[0]}` has no conversation that could use memory; "
                "run it without amux"
            )

    def check_server(self) -> None:
        """Refuse what an app-server has no meaning for."""
        known = _CONFIG | _FEATURES | frozenset(_AS_CONFIG) | {"--strict-config"}
        for word in self.words:
            if word.option is not None and word.option not in known:
                raise BadArguments(
                    f"codex {word.option} means nothing to an app-server; pass -c, --enable, "
                    "--disable, --model, --sandbox or --ask-for-approval, or launch in a terminal"
                )
        resume = self.resume
        if resume is not None and not resume.native_id:
            raise BadArguments("an app-server has no picker: name the conversation's id")
        named = 0 if resume is None or self.executes else 2
        if self.rest or len(self.plain) > named:
            first = (*self.plain[named:], *self.rest)[0]
            raise BadArguments(
                f"an app-server takes no prompt, but {first!r} was given; send a turn over the "
                "channel, or launch in a terminal"
            )


def read(arguments: Sequence[str]) -> CallerArguments:
    """Read the caller's arguments; raise BadArguments where an option lacks its value."""
    words: list[Word] = []
    pending = list(arguments)
    while pending and pending[0] != "--":
        text = pending.pop(0)
        if not text.startswith("-") or text == "-":
            words.append(Word(texts=(text,)))
            continue
        option, joined, value = _split(text)
        if option not in _TAKES_VALUE:
            words.append(Word(texts=(text,), option=option))
        elif joined:
            words.append(Word(texts=(text,), option=option, value=value))
        elif pending:
            value = pending.pop(0)
            words.append(Word(texts=(text, value), option=option, value=value))
        else:
            raise BadArguments(f"codex {text} lacks its value")
    return CallerArguments(words=tuple(words), rest=tuple(pending))


def _split(text: str) -> tuple[str, bool, str]:
    """Split `--option=value` and `-ovalue`."""
    if text.startswith("--"):
        option, equals, value = text.partition("=")
        return option, bool(equals), value
    option, value = text[:2], text[2:]
    return option, bool(value) and option in _TAKES_VALUE, value.removeprefix("=")


def _toml_or_raw(text: str) -> str:
    """Read a value as Codex does: TOML where it is TOML, else the text itself."""
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, str) else text
