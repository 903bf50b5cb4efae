"""What each kind of sub-agent is told, in each mode of a launch: the probe's own look at them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.launcher.probe.findings import Finding
from amux.launcher.probe.prober import CHILD, step_of
from amux.launcher.probe.scene import NATIVE, ROLE

if TYPE_CHECKING:
    from amux.launcher.probe.turns import Turn
    from amux.launcher.report import LaunchReport
    from amux.providers.base import Mode

KINDS: Final = {
    "claude": ("general-purpose", "Explore", "Plan", ROLE),
    "claude-sdk": ("general-purpose", ROLE),
    "codex": ("", ROLE),
}
"""The kinds that are started; the empty one is the agent's own default."""
CONTROL: Final = "protocol in sub-agents"
ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one sub-agent was sent in its first request."""

    protocol: bool
    tools: bool
    native: bool

    @classmethod
    def of(cls, turn: Turn, protocol: str) -> Told:
        """Read a request; `protocol` is the text that the launch froze."""
        body = json.dumps(turn.body, ensure_ascii=False)
        marker = json.dumps(protocol.splitlines()[-1], ensure_ascii=False)[1:-1]
        return cls(
            protocol=marker in body,
            tools=turn.tool("memory_search") is not None,
            native=NATIVE in body,
        )

    def finding(self, kind: str, mode: Mode, report: LaunchReport) -> Finding:
        """Say what it was sent; it must be what the report says of sub-agents."""
        observed = (
            f"protocol {'received' if self.protocol else 'not received'}, "
            f"memory tools {'offered' if self.tools else 'not offered'}, "
            f"native memory {'present' if self.native else 'absent'}"
        )
        agrees = self.protocol == claimed(report)
        if not agrees:
            observed = f"{observed}; the report says otherwise"
        return Finding(
            subject=f"sub-agent {kind or 'of its own kind'}, {mode}",
            observed=observed,
            passed=agrees and not self.native,
            source="model",
        )


def claimed(report: LaunchReport) -> bool:
    """Say whether the report claims the protocol for sub-agents.

    An agent of which it says nothing hands its own instructions on.
    """
    said = [one.observed for one in report.controls if one.control == CONTROL]
    return not said or said[-1] != ABSENT


def is_child(turn: Turn) -> bool:
    """Say whether a request is a sub-agent's first: it has the task, and no prompt of the probe."""
    return step_of(turn) is None and any(CHILD in text for text in turn.user)
