"""What Codex's own list of its features says: which are in effect, however they came to be so.

`config/read` merges files and flags. In versions before 0.124 it knows neither what a legacy
profile switches on nor the old names that `--enable` takes; the list does, in all versions that
have memory mode.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from amux.providers.base import Evidence
from amux.providers.codex.effective_config import objects
from amux.providers.errors import NotConfirmed, RequestRefused

if TYPE_CHECKING:
    from amux.providers.base import JsonObject
    from amux.providers.codex.app_server import Answer, Call

LIST: Final = "experimentalFeature/list"
MEMORIES: Final = "memories"
CONTROL: Final = "feature memories"
ALL: Final = 1000
"""Entries of one page: far more than there are (224 in 0.171.0)."""


def list_request(native_id: str | None = None) -> Call:
    """Return the request for the features in effect, for one loaded thread where it is named."""
    parameters: JsonObject = {"limit": ALL}
    return LIST, parameters if native_id is None else {**parameters, "threadId": native_id}


def memory_off_evidence(answer: Answer, source: str = LIST) -> Evidence:
    """Return evidence that the feature is not in effect; raise NotConfirmed."""
    if isinstance(answer, RequestRefused):
        raise NotConfirmed(
            "Codex does not list its features, so whether its native memory is in effect is not "
            "known; install another version, or launch without memory",
            answer=answer.answer,
        )
    found = [one for one in objects(answer.get("data")) if one.get("name") == MEMORIES]
    if [one.get("enabled") for one in found] == [False]:
        return Evidence(control=CONTROL, observed="disabled", source=source)
    if found:
        raise NotConfirmed(
            "Codex's native memory is not off: its feature `memories` is in effect although amux "
            "passed false. A profile of Codex's configuration, or a managed file, switches it on; "
            "remove it there, or launch without memory",
            answer=json.dumps(found)[:500],
        )
    raise NotConfirmed(
        "Codex's list of features has no `memories`, so whether its native memory is in effect is "
        "not known; install another version, or launch without memory",
        answer=f"{len(objects(answer.get('data')))} other features",
    )
