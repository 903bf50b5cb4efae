"""How an agent is ended that was started to be asked, or whose launch fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What shows that the agent is at something that must not be cut short, such as a refresh.

    `locks` are paths that are there for that long; the agent is ended at a moment without any of
    them. Without `locks` its stdin ends, and it is waited for. In the folders `own` an entry whose
    name begins with the agent's process id and a dot is the agent's; it would remove it itself.
    """

    locks: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
