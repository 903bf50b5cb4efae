"""What was learnt about a run at one moment, as everybody who watches it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amux.providers.base import Sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What was learnt at once: what was seen in the conversation, and what people should know."""

    session: str
    seen: tuple[Sighting, ...] = ()
    warnings: tuple[str, ...] = ()
