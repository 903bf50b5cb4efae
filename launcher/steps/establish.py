"""Make the launch report of what each step came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.launcher.memory.binding import Lease, Unbound
from amux.launcher.memory.protocol import digest
from amux.launcher.report import LaunchReport

if TYPE_CHECKING:
    from amux.launcher.memory.grant import Memory
    from amux.launcher.request import LaunchRequest
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import Confirmed, LaunchPlan, Sighting


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
    target = attempt.target
    frozen = memory.frozen if memory else None
    notice = bound.reason if isinstance(bound, Unbound) and bound.warning else None
    if isinstance(bound, Lease):
        notice = bound.warning
    instructions = confirmed.instructions or plan.instructions
    isolation = "none"
    remarks: tuple[str, ...] = ()
    if target.identity is not None:
        # Imported here: only an isolated launch needs it.
        from amux.materializer.identity import remarks as remarks_on  # noqa: PLC0415

        isolation = f"user {target.identity.user}"
        remarks = remarks_on(target.identity)
    elif attempt.record.private_home:
        isolation = "private-home (weak)"
    return LaunchReport(
        session=attempt.record.id,
        provider=target.provider.name,
        agent_version=version,
        mode=str(attempt.request.mode),
        resumed=target.resume is not None,
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
        missing=target.provider.capabilities.missing,
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
        command=target.command.argv,
        cwd=target.cwd,
    )


def _not_set(request: LaunchRequest) -> tuple[str, ...]:
    """Return a warning for each variable that was to be let in and is not there."""
    absent = dict.fromkeys(name for name in request.pass_names if name not in request.environment)
    return tuple(f"--env {name}: not set in this environment" for name in absent)
