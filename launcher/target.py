"""What a request was resolved to: which agent, as whom, where, and of which session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.launcher.session.store import SessionRecord
    from amux.materializer.values import Identity
    from amux.providers.base import NativeResume, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """How to start an agent: `argv` with absolute paths, and the folders that join PATH."""

    argv: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def program(self) -> Path:
        """Return the agent's own file, not its interpreter."""
        return Path(self.argv[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget:
    """What is launched. `stored` is the session that is resumed; None is a fresh one.

    `foreign` names a native conversation that is resumed without a record of ours: it stays
    without memory.
    """

    provider: Provider
    command: AgentCommand
    version: str
    identity: Identity | None
    home: str
    cwd: str
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    stored: SessionRecord | None
    resume: NativeResume | None
    foreign: str | None
