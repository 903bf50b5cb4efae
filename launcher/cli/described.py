"""A session's record for people: a line a field, and the two proofs apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.session.store import SessionRecord

WIDTH = 20
APART = frozenset({"evidence", "seen", "warnings"})


def printable(text: str) -> str:
    """Return the text on one line, control characters and what is not UTF-8 escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def described(record: SessionRecord) -> Iterator[str]:
    """Yield the lines: every field that holds something, then what was asked and what was seen."""
    for name, value in record.as_json().items():
        if name not in APART and value not in ("", (), None):
            yield from _field(name, value)
    if record.evidence:
        yield "asked before the agent started:"
    for one in record.evidence:
        asked = f", asked {one.asked}" if one.asked else ""
        yield printable(f"  {one.control} = {one.observed} ({one.source}{asked})")
    if record.seen:
        yield "seen in this conversation:"
    for sight in record.seen:
        yield printable(f"  {sight.control} = {sight.observed} ({sight.source}, turn {sight.turn})")
    for text in record.warnings:
        yield printable(f"warning: {text}")


def _field(name: str, value: object) -> Iterator[str]:
    """Yield one field; a text of several lines stands below its name."""
    match value:
        case str() if "\n" in value.strip():
            yield f"{name}:"
            yield from (f"  {printable(line)}" for line in value.splitlines())
        case list() | tuple() if value and all(isinstance(one, str) for one in value):
            yield f"{name:<{WIDTH}} {printable(' '.join(map(repr, value)))}"
        case list() | tuple():
            for one in value:
                yield from _field(name, one)
        case dict():
            inner = (f"{key} {one}" for key, one in value.items() if one not in ("", (), None))
            yield f"{name:<{WIDTH}} {printable(', '.join(inner))}"
        case _:
            yield f"{name:<{WIDTH}} {printable(str(value))}"
