"""The real Hub as a child process of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hub.client import HubClient
from hub.config import set_setting
from hub.home import open_home

if TYPE_CHECKING:
    from hub.client import LaunchGrant

ROOT = Path(__file__).parents[2]


@dataclass
class RealHub:
    """A Hub on a home of its own; started and stopped as often as a test needs."""

    home: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment in which this home is the caller's own."""
        return {"AMUX_HOME": str(self.home), "AMUX_RUNS": str(self.home / "runs")}

    def set(self, key: str, value: str) -> None:
        """Change a setting; it holds from the next start on."""
        set_setting(open_home(self.environ), key, value)

    def start(self) -> None:
        """Start the Hub and wait until it answers."""
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hub.server", "--ready-fd", str(writer)],
            env={**self.environ, "HOME": str(self.home), "PYTHONPATH": str(ROOT)},
            pass_fds=[writer],
            stderr=subprocess.DEVNULL,
        )
        os.close(writer)
        with os.fdopen(reader) as outcome:
            assert outcome.read() == "ready"

    def stop(self) -> None:
        """Stop the Hub and wait for its end."""
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(30) == 0
            self.process = None

    def restart(self, **settings: str) -> None:
        """Stop, change `memory_…` settings, start."""
        self.stop()
        for name, value in settings.items():
            self.set(name.replace("_", ".", 1), value)
        self.start()

    def open_launch(self, launch: str) -> LaunchGrant:
        """Open a launch of the local Principal, as a Runtime does."""
        with HubClient.from_file(self.home / "connections/runtime.json") as runtime:
            return runtime.open_launch(launch, principal=None, binding=None)

    def end_launch(self, launch: str) -> None:
        """End a launch."""
        with HubClient.from_file(self.home / "connections/runtime.json") as runtime:
            runtime.end_launch(launch)
