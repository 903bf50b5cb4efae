"""The one serialiser of the store's answers: what it measures is what the server sends."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Final

from amux.hub.values import Forgotten, Fragment, Match, SearchAnswer, Written

Answer = SearchAnswer | Fragment | Written | Forgotten

_KINDS: Final = (SearchAnswer, Match, Fragment, Written, Forgotten)
_NAMES: Final = {kind: [item.name for item in fields(kind)] for kind in _KINDS}


def _members(value: object) -> dict[str, object]:
    """Return a value's fields by name; one that is None is left out."""
    if not isinstance(value, _KINDS):
        raise TypeError(f"{type(value).__name__} does not travel")
    pairs = ((name, getattr(value, name)) for name in _NAMES[type(value)])
    return {name: member for name, member in pairs if member is not None}


def encode(answer: Answer) -> bytes:
    """Return the answer's JSON as it is sent: UTF-8, compact, absent members left out."""
    text = json.dumps(answer, default=_members, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
