"""What Claude has in a conversation's context: its answer to `get_context_usage`.

Known from 2.1.112 on. `memoryFiles` names each file of instructions and memory by path and type,
`mcpTools` the tools of MCP servers. It says what Claude loads now: text that an earlier run left in
the conversation is in the transcript alone. Claude counts tokens for the answer, in some 25
requests to its API that hold these texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.base import MEMORY_TOOLS, NATIVE_MEMORY, Sighting, TurnEvent
from amux.providers.claude.tools import PREFIX
from amux.providers.claude.transcript import AUTO_MEMORY

if TYPE_CHECKING:
    from amux.providers.base import JsonObject

USAGE: Final = "get_context_usage"
LATER_ID: Final = "amux-context"
FILES: Final = "memoryFiles"
INSTRUCTION_FILES: Final = "instruction files"
NOT_OFFERED: Final = "not offered"
"""This version does not tell: neither present nor absent."""
QUESTION: Final[JsonObject] = {
    "type": "control_request",
    "request_id": LATER_ID,
    "request": {"subtype": USAGE},
}


def turn_event(message: JsonObject) -> TurnEvent | None:
    """Say where a turn begins (a user's message, or Claude's own `init`) and ends."""
    match message.get("type"), message.get("subtype"):
        case ("user", _) | ("system", "init"):
            return TurnEvent.BEGUN
        case ("result", _):
            return TurnEvent.ENDED
        case ("system", "compact_boundary"):
            return TurnEvent.COMPACTED
    return None


def read_answer(message: JsonObject) -> tuple[Sighting, ...] | None:
    """Read the answer to QUESTION; None for another message."""
    response = message.get("response")
    if message.get("type") != "control_response" or not isinstance(response, dict):
        return None
    if response.get("request_id") != LATER_ID:
        return None
    usage = response.get("response")
    if response.get("subtype") != "success" or not isinstance(usage, dict):
        return (_not_offered(f"{USAGE}: {response.get('error')}"),)
    return sightings(usage)


def sightings(usage: JsonObject) -> tuple[Sighting, ...]:
    """Say whether Claude's own memory is in the context, whose instructions are, which tools."""
    return (*_files(usage), *_tools(usage))


def native_memory_files(usage: JsonObject) -> tuple[str, ...]:
    """Return the files of Claude's own memory in the context."""
    return tuple(path for kind, path in _listed(usage) or () if kind == AUTO_MEMORY)


def memory_tools(usage: JsonObject) -> tuple[str, ...] | None:
    """Return the names of the memory tools; None where the answer lists no tools at all."""
    listed = usage.get("mcpTools")
    if not isinstance(listed, list):
        return None
    names = (str(one.get("name")) for one in listed if isinstance(one, dict))
    return tuple(name for name in names if name.startswith(f"{PREFIX}__"))


def _files(usage: JsonObject) -> tuple[Sighting, ...]:
    files = _listed(usage)
    if files is None:
        return (_not_offered(f"{USAGE} without {FILES}"),)
    others = [f"{kind} {path}" for kind, path in files if kind != AUTO_MEMORY]
    whose = Sighting(
        control=INSTRUCTION_FILES, observed=", ".join(others) or "none", source=f"{USAGE} {FILES}"
    )
    mine = native_memory_files(usage)
    wrong = f"Claude has its own memory ({', '.join(mine)}) in this conversation's context, which "
    found = Sighting(
        control=NATIVE_MEMORY,
        observed="present" if mine else "absent",
        source=f"{USAGE} {FILES}",
        contradicts=f"{wrong}was to have none" if mine else "",
    )
    return (found, whose)


def _tools(usage: JsonObject) -> tuple[Sighting, ...]:
    mine = memory_tools(usage)
    if mine is None:
        return ()
    none = "" if mine else "Claude has none of the memory tools in this conversation's context"
    observed = f"{len(mine) or 'none'} offered"
    source = f"{USAGE} mcpTools"
    return (Sighting(control=MEMORY_TOOLS, observed=observed, source=source, contradicts=none),)


def _listed(usage: JsonObject) -> tuple[tuple[str, str], ...] | None:
    """Return type and path of each file; None where the answer does not list them."""
    listed = usage.get(FILES)
    if not isinstance(listed, list):
        return None
    return tuple(
        (str(one.get("type")), str(one.get("path"))) for one in listed if isinstance(one, dict)
    )


def _not_offered(source: str) -> Sighting:
    return Sighting(control=NATIVE_MEMORY, observed=NOT_OFFERED, source=source)
