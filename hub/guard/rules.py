"""What a rule of the content guard is.

Examples are templates: `<36 alnum>` stands for so many characters of a class, so that no
file of ours looks as if it held a key. Repetitions in a pattern have an upper bound, which
keeps the time to search a text proportional to its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub.guard.randomness import stands_for_a_key

if TYPE_CHECKING:
    from collections.abc import Callable

# Each key and token is at least so long.
RUN_LEAST: Final = 16
# A hint of so many characters, one of them no letter or digit, is never part of a word.
_TELLING: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pattern, why it is there, and texts that it must and must not match."""

    name: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    """Every match holds one of these, in lower case where the pattern ignores case."""
    source: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    accepts: Callable[[re.Match[str]], bool] | None = None
    """What a match must be beyond the pattern; looks at no more than the match and its sides."""
    own: bool = False
    """The form alone tells it: found too where a line break or a word touches it."""
    run: int = 0
    """A match holds a run of so many characters that no prose has, in one piece."""

    @property
    def folds(self) -> bool:
        """Tell whether the pattern ignores case, so that its hints are in lower case."""
        return bool(self.pattern.flags & re.IGNORECASE)

    def find(self, text: str) -> int | None:
        """Return the position of the first match, or None."""
        if self.accepts is None:
            match = self.pattern.search(text)
            return None if match is None else match.start()
        accepted = (match.start() for match in self.pattern.finditer(text) if self.accepts(match))
        return next(accepted, None)


def secret(  # noqa: PLR0913  # a rule is written as one record
    name: str,
    body: str,
    *,
    hints: tuple[str, ...],
    source: str,
    positive: tuple[str, ...],
    negative: tuple[str, ...],
    word: bool = True,
    key: bool | None = None,
    named: bool = False,
) -> Rule:
    r"""Make a rule for a published key format, which is `word`: no part of a longer one.

    One whose hints are telling counts also where a word touches it. `\b` would not do: a Chinese
    character before the key counts as a word's letter. A placeholder is no `key`; one that is
    `named` has its hint before it.
    """
    key = word if key is None else key
    telling = word and all(len(hint) >= _TELLING and not hint.isalnum() for hint in hints)
    if word and not telling:
        body = rf"(?<![A-Za-z0-9])(?:{body})(?![A-Za-z0-9])"
    return Rule(
        name=name,
        pattern=re.compile(body),
        hints=hints,
        source=source,
        positive=positive,
        negative=negative,
        accepts=_no_placeholder if key else None,
        own=key and not named,
        run=RUN_LEAST if key else 0,
    )


def _no_placeholder(match: re.Match[str]) -> bool:
    return not stands_for_a_key(match[0])


def injection(  # noqa: PLR0913  # a rule is written as one record
    name: str,
    body: str,
    *,
    hints: tuple[str, ...],
    source: str,
    positive: tuple[str, ...],
    negative: tuple[str, ...],
) -> Rule:
    """Make a rule for words that address the agent.

    They count where a sentence begins, or after "you must" and its like. A note that quotes
    such words in the middle of a sentence is about them and stays valid.
    """
    start = r"(?:^|[.!?:;,\u3002\uff01\uff1f\uff1a\uff1b\uff0c])[ \t>*_#\-\d.)]{0,16}"
    told = r"\b(?:you|agents?|assistants?) (?:must|should|shall|have to|need to) (?:now )?"
    return Rule(
        name=name,
        pattern=re.compile(f"(?:{start}|{told})(?:{body})", re.IGNORECASE | re.MULTILINE),
        hints=hints,
        source=source,
        positive=positive,
        negative=negative,
    )
