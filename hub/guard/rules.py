"""What a rule of the content guard is.

Examples are templates: `<36 alnum>` stands for so many characters of a class, so that no
file of ours looks as if it held a key. Repetitions in a pattern have an upper bound, which
keeps the time to search a text proportional to its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


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

    @property
    def folds(self) -> bool:
        """Tell whether the pattern ignores case, so that its hints are in lower case."""
        return bool(self.pattern.flags & re.IGNORECASE)


def secret(  # noqa: PLR0913  # a rule is written as one record
    name: str,
    body: str,
    *,
    hints: tuple[str, ...],
    source: str,
    positive: tuple[str, ...],
    negative: tuple[str, ...],
    word: bool = True,
) -> Rule:
    r"""Make a rule for a published key format, which is `word`: no part of a longer one.

    `\b` would not do: a Chinese character before the key counts as a word's letter.
    """
    body = rf"(?<![A-Za-z0-9])(?:{body})(?![A-Za-z0-9])" if word else body
    return Rule(
        name=name,
        pattern=re.compile(body),
        hints=hints,
        source=source,
        positive=positive,
        negative=negative,
    )


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
