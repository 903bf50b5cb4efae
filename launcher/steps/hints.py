"""Say why an agent ended at once when it was to resume: most agents keep nothing before a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amux.providers.base import Provider


AT_ONCE: Final = 15.0
"""Seconds within which an agent without the conversation has given up."""


def ended_at_once(provider: Provider, session: str, said: str) -> str:
    """Return what to do where a resumed agent failed at once; its words may not have been seen."""
    hint = no_conversation(provider, session, said)
    if hint or said or not provider.unknown_conversation:
        return hint
    return (
        f"if {provider.name} says above that it has no such conversation, session {session} never "
        "had a turn; launch a new one"
    )


def no_conversation(provider: Provider, session: str, said: str) -> str:
    """Return what to do where the agent said that it has no such conversation, else nothing."""
    if not any(words in said for words in provider.unknown_conversation):
        return ""
    return (
        f"{provider.name} has no conversation of session {session}: it never had a turn, or its "
        "files are gone; launch a new one"
    )
