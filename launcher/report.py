"""The launch report: what was established, for people and as stable JSON.

The JSON's schema is `docs/launch-report.schema.json`. A report never holds a credential or a
memory's text; fields are only ever added.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from amux.providers.base import Evidence, Sighting

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """What one launch or resume came to.

    `binding` is None for an unbound session; `unbound` then says why. `tools` is `mcp`, `cli` or
    `none`. `controls` lists each native control with what the agent answered before it started (or,
    `asked`, at an earlier launch); `seen` what the conversation itself showed by then, which the
    session's record goes on with. `missing` names the
    capabilities that the provider lacks. `isolation` is `none`,
    `private-home (weak)` or `user NAME`.
    """

    session: str
    provider: str
    agent_version: str
    mode: str
    resumed: bool
    native_id: str | None
    principal: str | None
    binding: str | None
    unbound: str | None
    protocol_version: str | None
    protocol_digest: str | None
    instructions_digest: str | None
    tools: str
    controls: tuple[Evidence, ...]
    seen: tuple[Sighting, ...]
    isolation: str
    missing: tuple[str, ...]
    warnings: tuple[str, ...]
    command: tuple[str, ...]
    cwd: str
    schema: int = SCHEMA

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values (lists, not tuples)."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def as_text(self) -> str:
        """Return the report for people, a line each."""
        lines = [
            f"session   {self.session}{' (resumed)' if self.resumed else ''}",
            f"agent     {' '.join(filter(None, (self.provider, self.agent_version)))}, {self.mode}",
            f"memory    {self.binding or f'none: {self.unbound}'}",
        ]
        if self.binding is not None:
            lines.append(f"tools     {self.tools}")
            lines.append(f"protocol  {self.protocol_version} {(self.protocol_digest or '')[:12]}")
            lines.extend(
                f"control   {one.control} = {one.observed} ({_source(one)})"
                for one in self.controls
            )
            lines.extend(
                f"seen      {one.control} = {one.observed} ({one.source}, turn {one.turn})"
                for one in self.seen
            )
        if self.isolation != "none":
            lines.append(f"isolation {self.isolation}")
        said = self.unbound or ""  # where the lack is why there is no memory
        lines.extend(f"missing   {name}" for name in self.missing if name not in said)
        lines.extend(f"warning   {text}" for text in self.warnings)
        return "\n".join(lines)


def _source(evidence: Evidence) -> str:
    return f"{evidence.source}, asked {evidence.asked}" if evidence.asked else evidence.source
