"""What `config/read` says: the values that Codex will act on, and where they came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from providers.base import Evidence
from providers.errors import NotConfirmed

if TYPE_CHECKING:
    from providers.base import JsonObject

CONTROLLED: Final = (
    "features.memories",
    "memories.use_memories",
    "memories.generate_memories",
)


def value_at(config: JsonObject, dotted: str) -> Any:  # noqa: ANN401  # it is whatever Codex sent
    """Return the value at a dotted key, None where there is none."""
    found: Any = config
    for segment in dotted.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(segment)
    return found


def off_evidence(answer: JsonObject) -> tuple[Evidence, ...]:
    """Return evidence that native memory is off; raise NotConfirmed naming the value that is not.

    Only a literal false counts: with the feature on, an unset value acts as true. Values are
    judged, never origins: a requirement pins a value and leaves the origin as it was.
    """
    config = answer.get("config")
    if not isinstance(config, dict):
        raise NotConfirmed("Codex sent no effective configuration", answer=json.dumps(answer))
    for dotted in CONTROLLED:
        value = value_at(config, dotted)
        if value is not False:
            raise NotConfirmed(
                f"Codex's native memory is not off: {dotted} is {json.dumps(value)}"
                f"{_whence(answer, dotted)}; remove it there, or launch without memory",
                answer=f"{dotted} = {json.dumps(value)}",
            )
    return tuple(
        Evidence(control=dotted, observed="false", source="config/read") for dotted in CONTROLLED
    )


def developer_instructions(answer: JsonObject) -> str:
    """Return the effective configured developer instructions, empty where there are none."""
    value = value_at(answer.get("config") or {}, "developer_instructions")
    return value if isinstance(value, str) else ""


def merge(configured: str, protocol: str) -> str:
    """Return the configured text, then the protocol, which is there exactly once."""
    if protocol in configured:
        return configured
    text = configured.rstrip()
    return f"{text}\n\n{protocol}" if text else protocol


def _whence(answer: JsonObject, dotted: str) -> str:
    origin = (answer.get("origins") or {}).get(dotted)
    name = origin.get("name") if isinstance(origin, dict) else None
    if not isinstance(name, dict):
        return " (Codex names no origin)"
    if name.get("type") == "sessionFlags":
        return " although amux passed false, so a requirement of this machine or account pins it"
    file = name.get("file")
    return f" (from {name.get('type')}{f' {file}' if file else ''})"
