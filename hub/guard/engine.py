"""Look through a document for what the rules name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from amux.hub.guard import invisible
from amux.hub.guard.injections import INJECTIONS
from amux.hub.guard.keys import SECRETS
from amux.hub.guard.readings import readings
from amux.hub.guard.rules import RUN_LEAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amux.hub.guard.rules import Rule

GuardMode = Literal["block", "warn"]
Group = Literal["secrets", "injections", "invisible"]
RULES: Final = (*SECRETS, *INJECTIONS)


class _Index:
    """Rules by their hints: a plain `in` is much cheaper than a pattern, and few texts have one."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        hints = [(hint, rule) for rule in rules for hint in rule.hints]
        self._exact = [(hint, rule) for hint, rule in hints if not rule.folds]
        self._folded = [(hint, rule) for hint, rule in hints if rule.folds]

    def matches(self, text: str, hinting: str, *, run: int = 0) -> Iterator[tuple[int, str]]:
        """Yield position and name of each rule's first match; hints are looked for in `hinting`."""
        hinted = [rule for hint, rule in self._exact if hint in hinting]
        if self._folded:
            folded = hinting.lower()
            hinted += [rule for hint, rule in self._folded if hint in folded]
        for rule in {id(rule): rule for rule in hinted if rule.run <= run}.values():
            at = rule.find(text)
            if at is not None:
                yield at, rule.name


_INJECTIONS: Final = _Index(INJECTIONS)
_BLOCKS: Final = _Index(rule for rule in SECRETS if not rule.run)
# A key's hint stands in its own run of characters, unless a name before it is the hint.
_KEYS: Final = _Index(rule for rule in SECRETS if rule.run and rule.own)
_NAMED: Final = _Index(rule for rule in SECRETS if rule.run and not rule.own)


def _secrets(text: str, *, own: bool = False) -> Iterator[tuple[int, str]]:
    """Yield position and name of each secret; `own`: only such as have a form of their own."""
    runs = [run for run in text.split() if len(run) >= RUN_LEAST]
    if runs:
        longest = max(map(len, runs))
        yield from _KEYS.matches(text, "\n".join(runs), run=longest)
        if not own:
            yield from _NAMED.matches(text, text, run=longest)
    if not own:
        yield from _BLOCKS.matches(text, text)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: the rule's name, a 1-based line and its group, never the text."""

    rule: str
    line: int
    group: Group = "secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """What is done with a finding of each group."""

    secrets: GuardMode = "block"
    injections: GuardMode = "block"
    invisible: GuardMode = "block"

    def blocks(self, finding: Finding) -> bool:
        """Tell whether a finding refuses the write."""
        mode: GuardMode = getattr(self, finding.group)
        return mode == "block"


def inspect(text: str) -> Finding | None:
    """Return the first finding in a document's text, or None."""
    return min(findings(text), key=lambda finding: finding.line, default=None)


def findings(text: str) -> tuple[Finding, ...]:
    """Return the first finding of each group, in the order of their positions."""
    groups: tuple[tuple[Group, Iterable[tuple[int, str]]], ...] = (
        ("secrets", _secrets(text)),
        ("injections", _INJECTIONS.matches(text, text)),
        ("invisible", invisible.first(text)),
    )
    firsts = ((min(found, default=None), group) for group, found in groups)
    found = sorted((*first, group) for first, group in firsts if first is not None)
    told = [Finding(name, text.count("\n", 0, at) + 1, group) for at, name, group in found]
    if not any(finding.group == "secrets" for finding in told):
        told.extend(_hidden(text))
    return tuple(told)


def _hidden(text: str) -> Iterator[Finding]:
    """Yield the first key that shows only in another reading of the text."""
    for reading in readings(text):
        first = min(_secrets(reading.text, own=True), default=None)
        if first is not None:
            yield Finding(first[1], reading.line(first[0]), "secrets")
            return
