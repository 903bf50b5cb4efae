"""Codex: its app-server for a supervisor, its own screen for a person, `codex exec` for a pipe."""

from __future__ import annotations

from amux.providers.codex.provider import CodexProvider
from amux.providers.codex.version import SHOWN

__all__ = ["SHOWN", "CodexProvider"]
