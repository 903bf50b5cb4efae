"""How an agent is ended that was started to be asked, or whose launch fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """What shows that the agent is at something that must not be cut short, such as a refresh.

    `lock_files` are there for that long; the agent is ended at a moment without any of them.
    Without `lock_files` its stdin ends, and it is waited for. In `pid_folders` an entry whose name
    begins with the agent's process id and a dot is the agent's, which would remove it itself.
    """

    lock_files: tuple[str, ...] = ()
    pid_folders: tuple[str, ...] = ()
