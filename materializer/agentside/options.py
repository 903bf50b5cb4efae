"""Command-line words to values; `argparse` alone would double the time of a call."""

from __future__ import annotations

import os

from amux.materializer.agentside.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FLAG = "flag"
TEXT = "text"
NUMBER = "number"
FILE = "file"


class Options:
    """What was said on a command line: the words, and the value of each option given."""

    __slots__ = ("values", "words")

    def __init__(self, words: list[str], values: dict[str, object]) -> None:
        self.words = words
        self.values = values

    def text(self, name: str) -> str | None:
        """Return a text option's value, or None where it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int:
        """Return a number option's value, or 0 where it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, int) else 0

    def flag(self, name: str) -> bool:
        """Tell whether a flag was given."""
        return bool(self.values.get(name))


def parse(arguments: Sequence[str], kinds: dict[str, str]) -> Options:
    """Split arguments into words and options (`--name value` or `--name=value`).

    `kinds` says for each option whether it is a FLAG, a TEXT, a NUMBER or a FILE. A lone
    `--` ends the options. Raises `Failure` with `invalid_request`.
    """
    words: list[str] = []
    values: dict[str, object] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += [_utf8(item) for item in rest]
            break
        if word.startswith("-") and word != "-":
            name, value = _option(word, rest, kinds)
            values[name] = value
        else:
            words.append(_utf8(word))
    return Options(words, values)


def _option(word: str, rest: list[str], kinds: dict[str, str]) -> tuple[str, object]:
    """Return an option's name and value, taking the value from `rest` unless `=` gives it."""
    name, assigned, value = word.partition("=")
    kind = kinds.get(name)
    if kind is None:
        raise Failure(
            "invalid_request",
            f"Unknown option {_shown(name)} (known: {', '.join(kinds)}); put -- before"
            " a word that begins with a dash.",
        )
    if kind == FLAG:
        if assigned:
            raise Failure("invalid_request", f"{name} takes no value.")
        return name, True
    if not assigned:
        if not rest:
            raise Failure("invalid_request", f"{name} needs a value.")
        value = rest.pop(0)
    return name, _value(name, kind, value)


def _value(name: str, kind: str, value: str) -> object:
    if kind == FILE:
        return value
    if kind == TEXT:
        return _utf8(value)
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):  # noqa: PLR2004
        raise Failure("invalid_request", f"{name} needs a whole number.")
    return int(value)


def _utf8(word: str) -> str:
    """Return the word as the UTF-8 text that was typed, whatever the locale is."""
    try:
        return os.fsencode(word).decode()
    except UnicodeError as error:
        raise Failure(
            "invalid_request", f"The argument {_shown(word)} is not UTF-8 text."
        ) from error


def _shown(word: str) -> str:
    return word.encode("ascii", "backslashreplace").decode("ascii")
