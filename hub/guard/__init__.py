"""The content guard: what must not be written into memory (docs/memory-store.md)."""

from hub.guard.engine import Finding, GuardMode, inspect

__all__ = ["Finding", "GuardMode", "inspect"]
