"""The launch report: what was established, for people and as stable JSON.

The JSON's schema is `docs/launch-report.schema.json`. A report never holds a credential or a
memory's text; fields are only ever added.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from amux.launcher.memory.binding import Lease, Unbound
from amux.launcher.memory.protocol import digest

if TYPE_CHECKING:
    from amux.launcher.memory.grant import Memory
    from amux.launcher.request import LaunchRequest
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import Confirmed, Evidence, LaunchPlan
    from amux.providers.sighting import Sighting

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


def established(  # noqa: PLR0913  # what each step came to, each by its own name
    attempt: Attempt,
    bound: Lease | Unbound,
    memory: Memory | None,
    plan: LaunchPlan,
    confirmed: Confirmed,
    *,
    version: str,
    seen: tuple[Sighting, ...] = (),
) -> LaunchReport:
    """Return the report of a launch from what each of its steps came to."""
    subject = attempt.subject
    frozen = memory.frozen if memory else None
    notice = bound.reason if isinstance(bound, Unbound) and bound.warning else None
    if isinstance(bound, Lease):
        notice = bound.warning
    instructions = confirmed.instructions or plan.instructions
    isolation = "none"
    remarks: tuple[str, ...] = ()
    if subject.identity is not None:
        # Imported here: only an isolated launch needs it.
        from amux.materializer.identity import remarks as remarks_on  # noqa: PLC0415

        isolation = f"user {subject.identity.user}"
        remarks = remarks_on(subject.identity)
    elif attempt.record.private_home:
        isolation = "private-home (weak)"
    return LaunchReport(
        session=attempt.record.id,
        provider=subject.provider.name,
        agent_version=version,
        mode=str(attempt.request.mode),
        resumed=subject.resume is not None,
        native_id=confirmed.native_id or plan.native_id or attempt.record.native_id or None,
        principal=bound.principal if isinstance(bound, Lease) else None,
        binding=bound.binding if isinstance(bound, Lease) else None,
        unbound=bound.reason if isinstance(bound, Unbound) else None,
        protocol_version=frozen.protocol_version if frozen else None,
        protocol_digest=frozen.protocol_digest if frozen else None,
        instructions_digest=digest(instructions) if frozen and instructions else None,
        tools=str(frozen.tools) if frozen else "none",
        controls=confirmed.evidence if frozen else (),
        seen=seen,
        isolation=isolation,
        missing=subject.provider.capabilities.missing,
        warnings=tuple(
            text
            for text in dict.fromkeys(
                (
                    notice,
                    *remarks,
                    *_not_set(attempt.request),
                    *plan.warnings,
                    *confirmed.warnings,
                    *(one.contradicts for one in seen),
                )
            )
            if text
        ),
        command=subject.command.argv,
        cwd=subject.cwd,
    )


def _not_set(request: LaunchRequest) -> tuple[str, ...]:
    """Return a warning for each variable that was to be let in and is not there."""
    absent = dict.fromkeys(name for name in request.pass_names if name not in request.environment)
    return tuple(f"--env {name}: not set in this environment" for name in absent)
