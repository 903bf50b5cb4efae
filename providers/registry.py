"""Find providers through the entry-point group `amux.providers`, each loaded when asked for."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from providers.base import Provider
from providers.errors import UnknownProvider

GROUP: Final = "amux.providers"


def load_provider(name: str) -> Provider:
    """Return the provider of that name; raise UnknownProvider saying which there are."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted({one.name for one in entry_points(group=GROUP)}))
        message = f"no provider is called {name!r}; there are: {known}"
        raise UnknownProvider(message)
    loaded = next(iter(found)).load()()
    if not isinstance(loaded, Provider):
        message = f"the entry point {name} gives no Provider"
        raise UnknownProvider(message)
    return loaded
