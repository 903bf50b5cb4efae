"""The content guard: what must not be written into memory (DESIGN section 6)."""

from hub.guard.engine import Finding, GuardMode, inspect

__all__ = ["Finding", "GuardMode", "inspect"]
