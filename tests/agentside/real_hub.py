"""What a Runtime and an operator do to the real Hub while an agent's side is at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.agentside.side import write_connection

if TYPE_CHECKING:
    from pathlib import Path

    from fixtures.hubs import HubHome


@dataclass(frozen=True, slots=True)
class RealHub:
    """A Hub process and the launches that are opened there."""

    process: HubHome

    @property
    def home(self) -> Path:
        """Return its AMUX_HOME."""
        return self.process.home

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment in which this home is the caller's own."""
        return {"AMUX_HOME": str(self.home)}

    def restart(self, **settings: str) -> None:
        """Stop if it runs, change `memory_…` settings, start."""
        self.stop()
        for name, value in settings.items():
            self.process.set(name.replace("_", ".", 1), value)
        self.process.start()

    def stop(self) -> None:
        """Stop the Hub if it runs."""
        if self.process.process is not None:
            assert self.process.stop() == 0

    def open_launch(self, launch: str, folder: Path) -> dict[str, str]:
        """Open a launch and return the environment of its agent, as a Runtime prepares it."""
        with self.process.client("runtime") as runtime:
            grant = runtime.open_launch(launch)
        file = write_connection(
            folder / "run/connection.json", f"unix:{self.process.agents}", grant.token
        )
        return {"AMUX_CONNECTION": str(file), "AMUX_MEMORY_BINDING": grant.binding}

    def end_launch(self, launch: str) -> None:
        """End a launch."""
        with self.process.client("runtime") as runtime:
            runtime.end_launch(launch)
