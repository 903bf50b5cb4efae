"""The content guard: what must not be written into memory (docs/memory-store.md)."""

from amux.hub.guard.engine import Finding, Guarding, GuardMode, findings, inspect

__all__ = ["Finding", "GuardMode", "Guarding", "findings", "inspect"]
