"""Carry a request through to a running agent: the one function, each arrow one call.

    LaunchRequest -> subject -> binding -> plan -> files -> process -> evidence -> record

Each step takes and returns frozen values and nothing reaches back. Whatever a step made is put
on a stack that unmakes it when a later step fails, so a failed launch leaves nothing but its
session record, which says why.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hub.errors import HubError
from launcher import memory as memories
from launcher.beside import start_server
from launcher.binding import Lease, Unbound
from launcher.channel import Controls, JsonLinesChannel, JsonRpcChannel, LineChannel
from launcher.environment import MemoryVariables, run_environment
from launcher.errors import BadRequest, LaunchError, MemoryNotIsolated
from launcher.facts import read_facts
from launcher.leases import LEASES
from launcher.preflight import PreflightMemory, run_preflight
from launcher.processes import boot_id
from launcher.report import LaunchReport, digest
from launcher.run import Run
from launcher.sessions import (
    RecordedEvidence,
    RunProcess,
    SessionRecord,
    SessionStore,
    State,
    timestamp,
)
from launcher.spawn import SpawnRequest, Stdio, spawn
from launcher.subject import find_subject
from materializer import identity as identities
from materializer import runs
from materializer.provision import Copy, provide
from providers.base import (
    AgentRequest,
    Confirmed,
    Framing,
    LaunchPlan,
    Mode,
    Preflight,
)
from providers.errors import NotConfirmed

if TYPE_CHECKING:
    from types import TracebackType

    from launcher.beside import Server
    from launcher.host import Host
    from launcher.memory import Memory
    from launcher.request import LaunchRequest
    from launcher.spawn import AgentProcess, ExitStatus
    from launcher.subject import Subject
    from materializer.values import RunPaths
    from providers.base import Evidence, Grant

STDIO: Final = {
    Mode.STREAM: Stdio.PIPES,
    Mode.TERMINAL: Stdio.INHERIT,
    Mode.PASSTHROUGH: Stdio.INHERIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a session as it is being made. `lock` is the descriptor of the right to run it."""

    request: LaunchRequest
    host: Host
    subject: Subject
    record: SessionRecord
    paths: RunPaths
    lock: int


def launch(request: LaunchRequest, host: Host) -> Run:
    """Start, or resume, an agent and return its run, with the report of what was established.

    Raises LaunchError, ProviderError, MaterializeError or HubError. Nothing of a failed launch is
    left but its session record, in the state `failed`, with the reason.
    """
    sessions = SessionStore(host.home)
    subject = find_subject(request, host, sessions)
    with contextlib.ExitStack() as undo:
        attempt = _claim(request, subject, host, undo)
        undo.push(functools.partial(_record_failure, sessions, attempt.record))
        return _carry(attempt, sessions, undo)


def _record_failure(
    sessions: SessionStore,
    record: SessionRecord,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Write down why a launch failed, an interrupt included; nothing where none did."""
    del trace
    if kind is not None:
        failure = str(error) or kind.__name__
        sessions.update(replace(record, state=State.FAILED, failure=failure))


def _claim(
    request: LaunchRequest, subject: Subject, host: Host, undo: contextlib.ExitStack
) -> Attempt:
    """Take the right to run the session, and draft its record: a new one, a fork's, its own."""
    sessions = SessionStore(host.home)
    stored = subject.stored
    fresh = stored is None or (subject.resume is not None and subject.resume.fork)
    identifier = stored.id if stored is not None and not fresh else sessions.new_id()
    lock = sessions.lock(identifier)
    undo.callback(lock.release)
    known = (
        SessionRecord(id=identifier, provider=subject.provider.name) if stored is None else stored
    )
    record = replace(
        known,
        id=identifier,
        agent_version=subject.version,
        native_id="" if fresh else known.native_id,
        kind=request.kind if stored is None else known.kind,
        parent=known.id if fresh and stored is not None else known.parent,
        command=subject.command.argv,
        arguments=subject.arguments,
        mode=str(request.mode),
        cwd=subject.cwd,
        user=subject.identity.user if subject.identity else "",
        private_home=str(request.private_home or known.private_home),
        marker=secrets.token_hex(16),
        boot=boot_id(),
        created=timestamp() if fresh else known.created,
        started="",
        ended="",
        exit_code=None,
        exit_signal=None,
        failure="",
        processes=(),
        state=State.STARTING,
    )
    return Attempt(
        request=request,
        host=host,
        subject=subject,
        record=record,
        paths=_place(None if fresh else stored, host),
        lock=lock.descriptor,
    )


def _place(stored: SessionRecord | None, host: Host) -> RunPaths:
    """Name the run's folder: the one that the session had, or a new one."""
    if stored is not None and stored.run and Path(stored.run).parent == host.runs:
        return runs.reopen(Path(stored.run))
    return runs.allocate(host.runs)


def _carry(attempt: Attempt, sessions: SessionStore, undo: contextlib.ExitStack) -> Run:
    """Take the arrows one after the other."""
    subject, host = attempt.subject, attempt.host
    bound = memories.bind(subject, attempt.request, host, launch=attempt.record.marker)
    memory = None
    if isinstance(bound, Lease):
        if bound.token is not None:
            undo.callback(_end_lease, host, bound.launch)
        memories.check_access(subject, bound, attempt.request, host)
        memory = memories.prepare(subject, bound, host, attempt.paths)
    else:
        memories.check_unbound(subject, attempt.request, host)
    _furnish(attempt)
    agent = _agent_request(attempt, memory)
    plan, confirmed = _plan(attempt, agent, memory)
    files = (*(memory.files if memory else ()), *plan.files)
    if files:
        runs.apply(attempt.paths, files, subject.identity)
        undo.callback(runs.remove, attempt.paths)
    record = _frozen_record(attempt, bound, memory)
    sessions.update(record)
    grant = memory.grant if memory else None
    start = _spawn_request(attempt, memory, plan)
    server = None
    if plan.server is not None:
        server = start_server(start, plan)
        undo.callback(server.stop)
        now = _control(attempt, server.channel, agent, grant, plan)
        confirmed = _together(confirmed, now)
    process = spawn(start)
    stop_if_failed = undo.enter_context(contextlib.ExitStack())
    stop_if_failed.callback(process.stop)
    channel = _channel(process, plan.framing)
    if isinstance(channel, JsonLinesChannel):
        now = _control(attempt, channel, agent, grant, plan)
        confirmed = _together(confirmed, now)
    if isinstance(channel, JsonRpcChannel) and grant is not None:
        channel.controls = _controls(attempt, channel, agent, confirmed.instructions or "")
    report = _report(attempt, bound, memory, plan, confirmed)
    record = _running(record, process, report, confirmed, plan)
    sessions.update(record)
    if server is not None and grant is not None:
        _attend(attempt, server, agent=agent, grant=grant, sessions=sessions, process=process)
    if isinstance(bound, Lease) and bound.token is not None:
        LEASES.keep(bound.launch, functools.partial(memories.hub_client, host))
    stop_if_failed.pop_all()
    return Run(
        report=report,
        process=process,
        channel=channel,
        closing=undo.pop_all(),
        ended=functools.partial(_ended, sessions, record),
    )


def _furnish(attempt: Attempt) -> None:
    """Make in a relocated home what the agent needs there, as the account that owns it."""
    subject, request = attempt.subject, attempt.request
    relocated = subject.identity is not None or attempt.record.private_home
    copies = tuple(Copy(source=one.source, target=one.target) for one in request.provide)
    if copies and not relocated:
        message = "--provide fills a relocated home; name one with --user or --private-home"
        raise BadRequest(message)
    if attempt.record.private_home:
        Path(subject.home).mkdir(mode=0o700, parents=True, exist_ok=True)
    if relocated:
        provide(subject.identity, subject.home, folders=subject.provider.folders, copies=copies)


def _agent_request(attempt: Attempt, memory: Memory | None) -> AgentRequest:
    """Return what the provider may know, with the environment that the agent will have."""
    subject = attempt.subject
    return AgentRequest(
        command=subject.command.argv,
        version=subject.version,
        arguments=subject.arguments,
        mode=attempt.request.mode,
        cwd=subject.cwd,
        home=subject.home,
        environment=run_environment(subject.environment, memory=_variables(memory)),
        interpreter=sys.executable,
        fresh_id=str(uuid.uuid4()),
        resume=subject.resume,
        options=attempt.request.options,
    )


def _plan(
    attempt: Attempt, agent: AgentRequest, memory: Memory | None
) -> tuple[LaunchPlan, Confirmed]:
    """Ask the provider for its plan; a pre-flight that it wants first is run and answered."""
    provider = attempt.subject.provider
    grant = memory.grant if memory else None
    facts = read_facts(provider.questions(agent), attempt.subject.identity, provider.traces(agent))
    step = provider.plan(agent, grant, facts)
    if isinstance(step, LaunchPlan):
        return step, Confirmed(instructions=step.instructions)
    if grant is None:
        message = f"{provider.name} asked for a pre-flight of a launch without memory"
        raise LaunchError(message)
    confirmed = _preflight(attempt, step, agent, grant)
    plan = provider.plan(agent, grant, facts, confirmed)
    if isinstance(plan, Preflight):
        message = f"{provider.name} asked for a second pre-flight"
        raise LaunchError(message)
    return plan, confirmed


def _preflight(attempt: Attempt, step: Preflight, agent: AgentRequest, grant: Grant) -> Confirmed:
    with contextlib.ExitStack() as undo:
        if step.files:
            runs.apply(attempt.paths, step.files, attempt.subject.identity)
            undo.callback(runs.remove, attempt.paths)
        try:
            return run_preflight(
                step,
                attempt.subject.provider,
                agent,
                grant,
                identity=attempt.subject.identity,
                marker=attempt.record.marker,
                memory=PreflightMemory(attempt.host.preflights),
            )
        except NotConfirmed as error:
            raise MemoryNotIsolated(str(error)) from error


def _control(
    attempt: Attempt,
    channel: JsonLinesChannel,
    agent: AgentRequest,
    grant: Grant | None,
    plan: LaunchPlan,
) -> Confirmed:
    """Do the handshake on the agent's own channel and confirm the controls."""
    try:
        return attempt.subject.provider.control(channel, agent, grant, plan)
    except NotConfirmed as error:
        raise MemoryNotIsolated(str(error)) from error


def _together(before: Confirmed, now: Confirmed) -> Confirmed:
    """Add what the agent's channel established to what a pre-flight did."""
    again = {one.control for one in now.evidence}
    earlier = (one for one in before.evidence if one.control not in again)
    return Confirmed(
        evidence=(*earlier, *now.evidence),
        instructions=now.instructions or before.instructions,
        native_id=now.native_id or before.native_id,
        warnings=(*before.warnings, *now.warnings),
    )


def _controls(
    attempt: Attempt, channel: JsonRpcChannel, agent: AgentRequest, instructions: str
) -> Controls:
    """Hold the supervisor's own requests to what the launch confirmed."""
    provider = attempt.subject.provider
    return Controls(
        before=lambda method, params: provider.outgoing(method, params, instructions),
        after=lambda method, result: provider.opened(channel, method, result, agent),
    )


def _attend(  # noqa: PLR0913  # everything that a thread on the screen is settled with
    attempt: Attempt,
    server: Server,
    *,
    agent: AgentRequest,
    grant: Grant,
    sessions: SessionStore,
    process: AgentProcess,
) -> None:
    """Settle each thread that a person opens on the screen; end the screen where that fails."""
    session = attempt.record.id

    def told(confirmed: Confirmed) -> None:
        record = sessions.load(session)
        seen = tuple(_recorded(one) for one in confirmed.evidence)
        sessions.update(
            replace(
                record,
                native_id=record.native_id or confirmed.native_id or "",
                evidence=tuple(dict.fromkeys((*record.evidence, *seen))),
                warnings=tuple(dict.fromkeys((*record.warnings, *confirmed.warnings))),
            )
        )

    def refused(reason: str) -> None:
        record = sessions.load(session)
        sessions.update(replace(record, warnings=(*record.warnings, reason), failure=reason))
        process.begin_stop()

    provider = attempt.subject.provider
    server.attend(
        lambda message, settled: provider.attend(server.channel, message, agent, grant, settled),
        told,
        refused,
    )


def _spawn_request(attempt: Attempt, memory: Memory | None, plan: LaunchPlan) -> SpawnRequest:
    return SpawnRequest(
        argv=plan.argv,
        environment=run_environment(
            attempt.subject.environment,
            additions=plan.environment,
            without=plan.without,
            memory=_variables(memory),
        ),
        cwd=attempt.subject.cwd,
        marker=attempt.record.marker,
        stdio=_stdio(attempt),
        identity=attempt.subject.identity,
        rows=attempt.request.rows,
        columns=attempt.request.columns,
        hold=(attempt.lock,),
        stderr_copy=2 if attempt.request.mode is Mode.PASSTHROUGH else None,
    )


def _stdio(attempt: Attempt) -> Stdio:
    """Choose the agent's stdio; another user never gets the caller's own."""
    mode = attempt.request.mode
    if mode is Mode.TERMINAL and attempt.request.pty:
        return Stdio.PTY
    if attempt.subject.identity is None:
        return STDIO[mode]
    return Stdio.PTY if mode is Mode.TERMINAL else Stdio.PIPES


def _variables(memory: Memory | None) -> MemoryVariables | None:
    return memory.variables if memory else None


def _channel(process: AgentProcess, framing: Framing) -> LineChannel | None:
    match framing:
        case Framing.JSON_RPC:
            return JsonRpcChannel(process)
        case Framing.JSON_LINES:
            return JsonLinesChannel(process)
        case Framing.LINES if process.stdout is not None:
            return LineChannel(process)
        case _:
            return None


def _frozen_record(
    attempt: Attempt, bound: Lease | Unbound, memory: Memory | None
) -> SessionRecord:
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
    )


def _report(
    attempt: Attempt,
    bound: Lease | Unbound,
    memory: Memory | None,
    plan: LaunchPlan,
    confirmed: Confirmed,
) -> LaunchReport:
    subject = attempt.subject
    frozen = memory.frozen if memory else None
    notice = bound.reason if isinstance(bound, Unbound) and bound.warning else None
    if isinstance(bound, Lease):
        notice = bound.warning
    isolation = "none"
    remarks: tuple[str, ...] = ()
    if subject.identity is not None:
        isolation = f"user {subject.identity.user}"
        remarks = identities.remarks(subject.identity)
    elif attempt.record.private_home:
        isolation = "private-home (weak)"
    return LaunchReport(
        session=attempt.record.id,
        provider=subject.provider.name,
        agent_version=subject.version,
        mode=str(attempt.request.mode),
        resumed=subject.resume is not None,
        native_id=confirmed.native_id or plan.native_id or attempt.record.native_id or None,
        principal=bound.principal if isinstance(bound, Lease) else None,
        binding=bound.binding if isinstance(bound, Lease) else None,
        unbound=bound.reason if isinstance(bound, Unbound) else None,
        protocol_version=frozen.protocol_version if frozen else None,
        protocol_digest=frozen.protocol_digest if frozen else None,
        instructions_digest=digest(confirmed.instructions or plan.instructions) if frozen else None,
        tools=str(frozen.tools) if frozen else "none",
        controls=confirmed.evidence if frozen else (),
        isolation=isolation,
        missing=subject.provider.capabilities.missing,
        warnings=tuple(
            text for text in (notice, *remarks, *plan.warnings, *confirmed.warnings) if text
        ),
        command=subject.command.argv,
        cwd=subject.cwd,
    )


def _running(
    record: SessionRecord,
    process: AgentProcess,
    report: LaunchReport,
    confirmed: Confirmed,
    plan: LaunchPlan,
) -> SessionRecord:
    instructions = (confirmed.instructions or plan.instructions or "") if record.bound else ""
    return replace(
        record,
        state=State.RUNNING,
        native_id=report.native_id or "",
        instructions=instructions,
        instructions_digest=digest(instructions) or "" if instructions else "",
        processes=(
            RunProcess(role="agent", pid=process.pid, start=process.start_time),
            RunProcess(role="shim", pid=process.shim_pid, start=process.shim_start_time),
        ),
        started=timestamp(),
        warnings=report.warnings,
        evidence=tuple(_recorded(one) for one in report.controls),
    )


def _recorded(evidence: Evidence) -> RecordedEvidence:
    return RecordedEvidence(
        control=evidence.control, observed=evidence.observed, source=evidence.source
    )


def _ended(sessions: SessionStore, record: SessionRecord, status: ExitStatus) -> None:
    """Write down how the run ended, in the record as it is by now."""
    ended = replace(
        sessions.load(record.id),
        state=State.ENDED,
        ended=timestamp(),
        exit_code=status.code,
        exit_signal=status.signal,
        processes=(),
    )
    sessions.update(ended)


def _end_lease(host: Host, launch_id: str) -> None:
    """End the run's credential; a Hub that is away forgets it when the lease is over."""
    LEASES.let_go(launch_id)
    with contextlib.suppress(HubError), memories.hub_client(host) as hub:
        hub.end_launch(launch_id)
