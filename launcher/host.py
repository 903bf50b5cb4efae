"""Where a Runtime lives: its home, its runs, and the environment that it was started with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amux.hub.home import open_home, runs_root
from amux.providers.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One Runtime's places. `home` is AMUX_HOME, links resolved; `runs` holds a folder per run.

    `providers` are the agents that it knows: those installed, unless it brings its own.
    """

    home: Path
    runs: Path
    environ: Mapping[str, str]
    providers: Registry = field(default_factory=Registry)

    @property
    def preflights(self) -> Path:
        """Return the file that remembers what pre-flights answered."""
        return self.home / "cache" / "preflights.json"

    @property
    def versions(self) -> Path:
        """Return the file that remembers what agents printed as their version."""
        return self.home / "cache" / "versions.json"


def this_host(environ: Mapping[str, str]) -> Host:
    """Open the home that `environ` names; raises amux.hub.errors.HomeRefused."""
    home = open_home(environ)
    return Host(home=home, runs=runs_root(home, environ, euid=os.geteuid()), environ=environ)
