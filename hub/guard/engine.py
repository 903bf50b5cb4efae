"""Look through a document for what the rules name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hub.guard import invisible
from hub.guard.injections import INJECTIONS
from hub.guard.keys import SECRETS

GuardMode = Literal["block", "warn"]
RULES: Final = (*SECRETS, *INJECTIONS)
# A plain `in` is much cheaper than a pattern, and most notes hold no hint at all.
_EXACT: Final = tuple((hint, rule) for rule in RULES if not rule.folds for hint in rule.hints)
_FOLDED: Final = tuple((hint, rule) for rule in RULES if rule.folds for hint in rule.hints)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: the rule's name and a 1-based line, never the text."""

    rule: str
    line: int


def inspect(text: str) -> Finding | None:
    """Return the first finding in a document's text, or None."""
    folded = text.lower()
    hinted = [rule for hint, rule in _EXACT if hint in text]
    hinted += [rule for hint, rule in _FOLDED if hint in folded]
    matches = ((rule.pattern.search(text), rule) for rule in hinted)
    found = [(match.start(), rule.name) for match, rule in matches if match]
    unseen = invisible.first(text)
    if unseen is not None:
        found.append(unseen)
    if not found:
        return None
    at, name = min(found)
    return Finding(name, text.count("\n", 0, at) + 1)
