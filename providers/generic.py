"""Any command: launched as it is, without memory."""

from __future__ import annotations

from typing import ClassVar

from amux.providers.base import (
    AgentRequest,
    Capabilities,
    Confirmed,
    Facts,
    Framing,
    Grant,
    LaunchPlan,
    Mode,
    Preflight,
    Provider,
    Tools,
)
from amux.providers.release import version_in


class GenericProvider(Provider):
    """Starts a command that no other provider knows.

    There is no way to tell an unknown agent about memory that would not change each of its
    turns, so nothing is injected: the report names what is missing.
    """

    name: ClassVar[str] = "generic"
    executable: ClassVar[str] = ""
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=False,
        tools=Tools.NONE,
        modes=frozenset(Mode),
        missing=("memory protocol", "memory tools", "control of the agent's native memory"),
    )

    def parse_version(self, output: str) -> str:
        """Return the first dotted number printed, or nothing: any command may be launched."""
        return version_in(output)

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Start the command with its own arguments."""
        del grant, facts, confirmed
        return LaunchPlan(argv=(*request.command, *request.arguments), framing=Framing.LINES)
