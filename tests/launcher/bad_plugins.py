"""Providers as careless third parties would write them."""

from __future__ import annotations

import sys

from amux.providers.base import Provider
from amux.providers.generic import GenericProvider


class Named(GenericProvider):
    name = "other"


class Raises(GenericProvider):
    name = "broken"

    def __init__(self) -> None:
        raise RuntimeError("no licence key")


class Abstract(Provider):
    name = "broken"
    executable = ""
    capabilities = GenericProvider.capabilities


def __getattr__(name: str) -> object:
    """Leave the interpreter, as a script that was meant to be run would."""
    if name == "Exits":
        sys.exit("usage: plugin [options]")
    raise AttributeError(name)
