"""Tell a key's characters from words, identifiers and placeholders, by counting."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

# The 150 commonest pairs of letters in identifiers: nine in ten pairs of a word, two in ten
# pairs of letters that were drawn.
_PAIRS: Final = (
    "ab ac ad ag ai al am an ap ar as at au ba be bl bu ca ce ch ck cl co ct da de di ea ec "
    "ed ee ef el em en ep er es et ex fa fi fo fr ge gs ha he hi ho ib ic id ie if ig il im "
    "in io ir is it ke la ld le lf li ll lo ls lt lu ma me mo mp na nc nd ne ng ni no ns nt "
    "oc od ol om on oo op or os ot ou pa pe pl po pp pr pt py qu ra rd re ri rm rn ro rr rs "
    "rt ry sc se sh si so sp ss st su ta te th ti to tr ts tt tu ty ue ul um un up ur us ut "
    "va ve wi xt yp"
)
_COMMON: Final = frozenset(_PAIRS.split(" "))
_WORDS_MOST: Final = 0.35
_LEAST: Final = 16
_LETTERS_LEAST: Final = 4
_DIGITS_LEAST: Final = 2
_PAIRS_LEAST: Final = 6
_RUN_LEAST: Final = 18
# Digits between letters, so often as chance puts them there.
_TURNS_LEAST: Final = 0.22
_TURNING_RUN: Final = 8
_RUN: Final = re.compile(r"[A-Za-z0-9]{1,4096}")
_STANDS_FOR: Final = re.compile(
    r"example|placeholder|change-?me|xxxx|redacted|your[-_]|<|\*\*\*|\.\.\.|0123456789|1234567890"
    r"|abcdefgh",
    re.IGNORECASE,
)
_REPEATS: Final = re.compile(r"(.)\1{5}")
_TAIL: Final = 16
_TAIL_LEAST: Final = 5


def stands_for_a_key(text: str) -> bool:
    """Tell a placeholder: it says so, or it repeats a few characters."""
    tail = text[-_TAIL:]
    few = len(set(tail)) < min(_TAIL_LEAST, len(tail))
    return few or bool(_REPEATS.search(tail)) or bool(_STANDS_FOR.search(text))


def is_drawn(text: str) -> bool:
    """Tell whether the characters look as if they were drawn, and not written by a person."""
    runs = _RUN.findall(text)
    size, longest = sum(map(len, runs)), max(map(len, runs), default=0)
    letters = sum(character.isalpha() for run in runs for character in run)
    digits = size - letters
    if size < _LEAST or letters < _LETTERS_LEAST:
        return False
    if digits < _DIGITS_LEAST and longest < _RUN_LEAST:
        return False
    pairs = common = turns = 0
    for run in runs:
        for first, second in pairwise(run):
            turns += first.isdigit() != second.isdigit()
            if not (first.isdigit() and second.isdigit()):
                pairs += 1
                # From small to capital another word begins.
                inside = not (first.islower() and second.isupper())
                common += inside and (first + second).lower() in _COMMON
    if longest >= _TURNING_RUN and turns >= _TURNS_LEAST * size:
        return True
    return pairs >= _PAIRS_LEAST and common <= _WORDS_MOST * pairs
