"""Codex: its app-server for a supervisor, its own screen for a person, `codex exec` for a pipe."""

from __future__ import annotations

from providers.codex.provider import CodexProvider
from providers.codex.version import SHOWN

__all__ = ["SHOWN", "CodexProvider"]
