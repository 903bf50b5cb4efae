"""The session record along a launch: decided, running, ended, or failed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import SessionDamaged, SessionNotFound
from amux.launcher.memory.binding import Lease, Unbound
from amux.launcher.memory.protocol import digest
from amux.launcher.process.signal_safe import Alone
from amux.launcher.session.store import RecordedEvidence, RunProcess, State, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from amux.launcher.memory.grant import Memory
    from amux.launcher.process.spawn import AgentProcess, ExitStatus
    from amux.launcher.report import LaunchReport
    from amux.launcher.session.store import SessionRecord, SessionStore, TranscriptMark
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import Confirmed, Evidence, LaunchPlan, Sighting


LIVE: Final = Alone()
"""Reads a record and writes it again while its run lives: two threads do that."""


def decided(attempt: Attempt, bound: Lease | Unbound, memory: Memory | None) -> SessionRecord:
    """Return the record as it is saved before the spawn: the binding and text are decided."""
    record = replace(attempt.record, run=str(attempt.paths.run))
    if memory is None or not isinstance(bound, Lease):
        return record
    return replace(
        record,
        principal=bound.principal or record.principal,
        binding=bound.binding,
        protocol=memory.frozen.protocol,
        protocol_version=memory.frozen.protocol_version,
        protocol_digest=memory.frozen.protocol_digest,
        tools=str(memory.frozen.tools),
        tool_list=memory.frozen.tool_list,
    )


def running(
    record: SessionRecord,
    process: AgentProcess,
    report: LaunchReport,
    confirmed: Confirmed,
    plan: LaunchPlan,
) -> SessionRecord:
    """Return the record of a run that stands, with the frozen text and the evidence."""
    instructions = (confirmed.instructions or plan.instructions or "") if record.bound else ""
    own = confirmed.subagent_instructions or plan.subagent_instructions if record.bound else None
    # An older agent that cannot take the frozen text leaves it to the next run.
    own = own or record.subagent_instructions
    return replace(
        record,
        state=State.RUNNING,
        agent_version=report.agent_version,
        native_id=report.native_id or "",
        conversations=_with(record, report.native_id),
        instructions=instructions,
        instructions_digest=digest(instructions) if instructions else "",
        subagent_instructions=own,
        subagent_instructions_digest=digest(own) if own else "",
        processes=(
            RunProcess(role="agent", pid=process.pid, start=process.start_time),
            RunProcess(role="shim", pid=process.shim_pid, start=process.shim_start_time),
        ),
        started=timestamp(),
        warnings=report.warnings,
        evidence=tuple(recorded(one) for one in report.controls),
        seen=report.seen,
    )


def _update(
    sessions: SessionStore, session: str, change: Callable[[SessionRecord], SessionRecord]
) -> None:
    LIVE.do(lambda: sessions.update(change(sessions.load(session))))


def write_end(sessions: SessionStore, record: SessionRecord, status: ExitStatus) -> None:
    """Write down how the run ended, in the record as it is by now."""
    _update(
        sessions,
        record.id,
        lambda known: replace(
            known,
            state=State.ENDED,
            ended=timestamp(),
            exit_code=status.code,
            exit_signal=status.signal,
            survivors=status.survivors,
            processes=(),
        ),
    )


def write_settled(sessions: SessionStore, session: str, confirmed: Confirmed) -> None:
    """Add what was established about a conversation that was opened while the run lives."""
    seen = tuple(recorded(one) for one in confirmed.evidence)
    own = None if confirmed.foreign else confirmed.native_id
    _update(
        sessions,
        session,
        lambda known: replace(
            known,
            native_id=known.native_id or own or "",
            conversations=_with(known, own),
            evidence=tuple(dict.fromkeys((*known.evidence, *seen))),
            warnings=tuple(dict.fromkeys((*known.warnings, *confirmed.warnings))),
        ),
    )


def _with(record: SessionRecord, native_id: str | None) -> tuple[str, ...]:
    """Return the session's own conversations with one more."""
    return tuple(dict.fromkeys(one for one in (*record.conversations, native_id) if one))


def write_seen(
    sessions: SessionStore,
    session: str,
    seen: tuple[Sighting, ...],
    warnings: tuple[str, ...] = (),
    mark: TranscriptMark | None = None,
) -> None:
    """Add what was seen in the conversation; of one control at one source the latest stays."""

    def change(known: SessionRecord) -> SessionRecord:
        latest = {(one.control, one.source): one for one in (*known.seen, *seen)}
        return replace(
            known,
            seen=tuple(latest.values()),
            warnings=tuple(dict.fromkeys((*known.warnings, *warnings))),
            transcript=mark or known.transcript,
        )

    _update(sessions, session, change)


def write_unsettled(sessions: SessionStore, session: str, reason: str) -> None:
    """Write down why the run is ended from within."""
    _update(
        sessions,
        session,
        lambda known: replace(known, warnings=(*known.warnings, reason), failure=reason),
    )


def write_failure(
    sessions: SessionStore,
    attempt: Attempt,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Write down why a launch failed, an interrupt included; nothing where none did.

    Where that cannot be written, the next start of amux settles the record.
    """
    del trace
    if kind is None:
        return
    failed = replace(attempt.record, state=State.FAILED, failure=str(error) or kind.__name__)

    def change() -> None:
        warnings = failed.warnings
        with contextlib.suppress(SessionNotFound, SessionDamaged):
            warnings = sessions.load(failed.id).warnings  # told since the draft
        sessions.update(replace(failed, warnings=warnings))

    try:
        LIVE.do(change)
    except OSError:
        attempt.lock.unsettled = True


def recorded(evidence: Evidence) -> RecordedEvidence:
    """Return a piece of evidence as the record holds it."""
    return RecordedEvidence(
        control=evidence.control,
        observed=evidence.observed,
        source=evidence.source,
        asked=evidence.asked,
    )
