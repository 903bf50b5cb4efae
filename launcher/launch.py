"""Carry a request through to a running agent: the one function, each arrow one call.

    LaunchRequest -> target -> binding -> plan -> files -> process -> evidence -> record

Each step takes and returns frozen values and nothing reaches back. Whatever a step made is put
on a stack that unmakes it when a later step fails, so a failed launch leaves nothing but its
session record, which says why.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HubError
from amux.launcher.channel.context_query import open_inquiry
from amux.launcher.channel.jsonlines import JsonLinesChannel
from amux.launcher.channel.jsonrpc import JsonRpcChannel
from amux.launcher.channel.lines import LineChannel
from amux.launcher.errors import (
    AgentFailed,
    BadRequest,
    LaunchError,
    SessionDamaged,
    SessionNotFound,
    host_errors,
)
from amux.launcher.evidence.conversation import Conversation
from amux.launcher.evidence.mcp_evidence import open_hearing
from amux.launcher.evidence.notices import Notices
from amux.launcher.evidence.output import Watcher
from amux.launcher.evidence.poller import LOOKOUT
from amux.launcher.evidence.query_socket import open_desk
from amux.launcher.evidence.screen_threads import Attendance
from amux.launcher.memory.access import (
    check_access,
    check_continued,
    check_heard,
    check_required,
    check_unbound,
)
from amux.launcher.memory.binding import Lease, bind
from amux.launcher.memory.grant import MemoryVariables, prepare, unusable
from amux.launcher.memory.hub import hub_client
from amux.launcher.memory.hub_keeper import HUBS
from amux.launcher.memory.renewal import LEASES
from amux.launcher.process.detached import Servers
from amux.launcher.process.ending import begin_end, end
from amux.launcher.process.spawn import SpawnRequest, Stdio, spawn
from amux.launcher.provider_call import held
from amux.launcher.run import Run
from amux.launcher.session.store import SessionStore
from amux.launcher.steps.app_server import start_server
from amux.launcher.steps.attempt import Attempt, claim
from amux.launcher.steps.descriptor_arguments import with_files
from amux.launcher.steps.environment import run_environment
from amux.launcher.steps.environment_notes import remarks
from amux.launcher.steps.establish import established
from amux.launcher.steps.planning import (
    agent_request,
    as_it_says,
    control,
    controls,
    driving,
    plan_launch,
    together,
    without_unknown,
)
from amux.launcher.steps.record import (
    decided,
    running,
    write_end,
    write_failure,
    write_settled,
    write_unsettled,
)
from amux.launcher.steps.relocated_home import furnish
from amux.launcher.steps.resolve import resolve_target
from amux.materializer import runs
from amux.providers.base import VERSION, Confirmed, Evidence, Framing, Mode, Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.evidence.mcp_evidence import Hearing
    from amux.launcher.host import Host
    from amux.launcher.memory.binding import Unbound
    from amux.launcher.memory.grant import Memory
    from amux.launcher.process.spawn import AgentProcess, ExitStatus
    from amux.launcher.request import LaunchRequest
    from amux.launcher.session.notice import Notice
    from amux.launcher.steps.app_server import Server
    from amux.providers.base import AgentRequest, LaunchPlan, Sighting

NOT_MADE: Final = "the launch could not be made"
STDIO: Final = {
    Mode.STREAM: Stdio.PIPES,
    Mode.TERMINAL: Stdio.INHERIT,
    Mode.PASSTHROUGH: Stdio.INHERIT,
}


def launch(
    request: LaunchRequest,
    host: Host,
    *,
    began: Callable[[str], None] = lambda _: None,
    stands: Callable[[AgentProcess], None] = lambda _: None,
    heard: Callable[[Notice], None] = lambda _: None,
) -> Run:
    """Start, or resume, an agent and return its run, with the report of what was established.

    Raises `AmuxError`. Nothing of a failed launch is
    left but its session record, in the state `failed`, with the reason. `began` hears the session's
    id as soon as this run has it: a failure before that leaves every session as it was. `stands`
    hears the process once nothing of the launch can fail: from then on whoever gives it up has to
    end it. `heard` hears, on any thread, what is learnt about the run after the report.
    """
    # Outside for what fails while a launch is unmade, inside so that its record gets the sentence.
    with host_errors(NOT_MADE), contextlib.ExitStack() as undo, host_errors(NOT_MADE):
        sessions = SessionStore(host.home)
        target = resolve_target(request, host, sessions)
        attempt = with_files(claim(request, target, host, undo))
        began(attempt.record.id)
        undo.push(functools.partial(write_failure, sessions, attempt))
        notices = Notices(sessions, attempt.record.id, heard)
        return _carry(attempt, sessions, notices, undo, stands)


def _carry(
    attempt: Attempt,
    sessions: SessionStore,
    notices: Notices,
    undo: contextlib.ExitStack,
    stands: Callable[[AgentProcess], None],
) -> Run:
    """Take the arrows one after the other."""
    target = attempt.target
    hub_notes: list[str] = []
    bound, memory = _bind(attempt, undo, hub_notes.append)
    notes = (*hub_notes, *furnish(attempt), *remarks(attempt))
    # Before anything is started, so that a crash leaves the marker by which it is ended.
    record = sessions.update(decided(attempt, bound, memory))
    agent = agent_request(attempt, memory)
    protocol = memory.frozen.protocol if memory else None
    conversation = Conversation(target.provider, agent, target.identity, protocol)
    seen = conversation.before(target.stored.transcript if target.stored else None)
    check_continued(attempt.request, seen)
    agent, plan, confirmed = plan_launch(attempt, agent, memory)
    confirmed = together(Confirmed(warnings=notes), confirmed)
    _place(attempt, memory, plan, notices, undo)
    hearing = open_hearing(attempt, memory, undo)
    grant = memory.grant if memory else None
    over = undo.enter_context(contextlib.ExitStack())  # what is told once all has ended
    server, now = _beside(attempt, agent, memory, plan, undo)
    confirmed = together(confirmed, now)
    stop_if_failed = undo.enter_context(contextlib.ExitStack())
    begun = _begin(attempt, agent, memory, plan)
    agent, plan, process, channel = begun.agent, begun.plan, begun.process, begun.channel
    stop_if_failed.callback(_end, attempt, agent, process)
    confirmed = together(confirmed, begun.confirmed)
    ending = held(target.provider.shutdown, Shutdown)(agent)
    on_contradiction = functools.partial(_end_refused, sessions, record.id, process, ending)
    settled = functools.partial(write_settled, sessions, record.id)
    if isinstance(channel, JsonLinesChannel) and grant is not None:
        channel.controls = controls(
            attempt,
            channel,
            agent,
            confirmed,
            on_evidence=settled,
            on_contradiction=on_contradiction,
        )
    seen += check_heard(attempt.request, hearing.before())
    report = established(attempt, bound, memory, plan, confirmed, version=agent.version, seen=seen)
    record = running(record, process, report, confirmed, plan)
    sessions.update(record)
    conversation.begin(record.instructions)
    if server is not None and grant is not None:
        screen = Attendance(attempt, sessions, conversation, notices, on_contradiction)
        screen.attend(server, agent, grant)
    watcher = Watcher(
        target.provider,
        (*confirmed.evidence, Evidence(control=VERSION, observed=agent.version, source="asked")),
        settled,
        on_contradiction,
        lambda seen: notices.tell(seen=seen),
    )
    if isinstance(channel, JsonLinesChannel) and grant is not None:
        channel.watcher = watcher
        on_answer = functools.partial(
            conversation.hear, notices=notices, on_contradiction=on_contradiction
        )
        _inquire(attempt, channel, on_answer, undo)
    _keep_lease(attempt, bound, memory, notices)
    finish = _follow(
        conversation,
        hearing,
        record.id,
        sessions,
        notices=notices,
        on_contradiction=on_contradiction,
    )
    own = (process, *((server.process,) if server is not None else ()))
    for one in own:
        over.callback(_tell_detached, notices, one)
    undo.callback(LOOKOUT.keep(Servers(own, functools.partial(_warn, notices)).look))
    stands(process)
    stop_if_failed.pop_all()
    driven = plan.driven and grant is not None
    return Run(
        report=report,
        process=process,
        channel=channel,
        driving=driving(attempt, record.instructions, watcher) if driven else None,
        closing=undo.pop_all(),
        ended=functools.partial(_write_end, attempt, sessions, conversation, finish, notices),
    )


def _place(
    attempt: Attempt,
    memory: Memory | None,
    plan: LaunchPlan,
    notices: Notices,
    undo: contextlib.ExitStack,
) -> None:
    """Put the run's files in place; from here on the target's account is used."""
    files = (*(memory.files if memory else ()), *plan.files, *attempt.given)
    if files:
        warn = functools.partial(_warn, notices)
        runs.apply(attempt.paths, files, attempt.target.identity, warn)
        undo.callback(runs.remove, attempt.paths, warn)
    attempt.use_account()


def _warn(notices: Notices, sentence: str) -> None:
    """Tell people something of a run; a record that cannot be written stops nothing."""
    with contextlib.suppress(OSError, SessionDamaged, SessionNotFound):
        notices.tell(warnings=(sentence,))


def _tell_detached(notices: Notices, process: AgentProcess) -> None:
    """Name what ended with the run although it was to live on by itself."""
    if process.detached:
        _warn(
            notices,
            f"detached from the agent, and ended with its run: {process.detached}; what is to live "
            "on must be started outside of the run",
        )


def _bind(
    attempt: Attempt, undo: contextlib.ExitStack, warn: Callable[[str], None]
) -> tuple[Lease | Unbound, Memory | None]:
    """Ask for the binding, check whose memory this launch may get, and prepare it."""
    target, host, request = attempt.target, attempt.host, attempt.request
    bound = bind(target, request, host, launch=attempt.record.marker, warn=warn)
    memory = None
    if isinstance(bound, Lease):
        if bound.token is not None:
            undo.callback(_end_lease, host, bound.launch)
        check_access(target, bound, request, host, attempt.unclaim)
        memory = prepare(target, bound, host, attempt.paths)
        bound = replace(bound, warning=unusable(memory))
    else:
        check_unbound(target, request, host, attempt.unclaim)
    check_required(request, bound)
    return bound, memory


def _inquire(
    attempt: Attempt,
    channel: JsonLinesChannel,
    on_answer: Callable[[tuple[Sighting, ...]], None],
    undo: contextlib.ExitStack,
) -> None:
    """Let the agent be asked what its context holds: by the run itself, and by others."""
    channel.inquiry = open_inquiry(attempt.target.provider, channel.send, on_answer)
    if channel.inquiry is not None:
        desk = open_desk(attempt.paths.run, channel.inquiry)
        if desk is not None:
            undo.callback(desk.close)


def _keep_lease(
    attempt: Attempt, bound: Lease | Unbound, memory: Memory | None, notices: Notices
) -> None:
    """Let the run's credential, and the Hub that it is of, last as long as the run."""
    if isinstance(bound, Lease) and bound.token is not None:
        warn = functools.partial(_warn, notices)
        LEASES.keep(bound, functools.partial(hub_client, attempt.host), warn)
        if attempt.request.start_hub and memory is not None and memory.local:
            HUBS.keep(bound.launch, attempt.host, warn)


def _beside(
    attempt: Attempt,
    agent: AgentRequest,
    memory: Memory | None,
    plan: LaunchPlan,
    undo: contextlib.ExitStack,
) -> tuple[Server | None, Confirmed]:
    """Start the server that the plan wants beside the screen, and confirm the controls on it."""
    if plan.server is None:
        return None, Confirmed()
    server = start_server(_spawn_request(attempt, memory, plan), plan)
    undo.callback(server.stop)
    grant = memory.grant if memory else None
    now = control(attempt, server.channel, agent, grant, plan)
    if now.version not in ("", agent.version):
        message = f"{' '.join(agent.command)} was another version when it started; launch again"
        raise AgentFailed(message)
    return server, now


def _follow(  # noqa: PLR0913  # what is followed, and who is told
    conversation: Conversation,
    hearing: Hearing,
    session: str,
    sessions: SessionStore,
    *,
    notices: Notices,
    on_contradiction: Callable[[str], None],
) -> Callable[[], None]:
    """Read the conversation once a turn is over; return what reads it at the end."""

    def native_id() -> str:
        return sessions.load(session).native_id

    def look() -> bool:
        over = conversation.look(native_id, notices, on_contradiction)
        if over:
            hearing.turn_over()
        return over

    def finish() -> None:
        let_go()
        conversation.look(native_id, notices)
        hearing.finish()

    hearing.begin(notices)
    let_go = LOOKOUT.keep(look)
    return finish


def _write_end(  # noqa: PLR0913, PLR0917  # what is written, from where
    attempt: Attempt,
    sessions: SessionStore,
    conversation: Conversation,
    finish: Callable[[], object],
    notices: Notices,
    status: ExitStatus,
) -> None:
    """Write down what the conversation showed, then how the run ended; never raises.

    Where that cannot be written (a full disk), or something of the run could not be ended, the next
    start of amux looks again.
    """
    session = attempt.record.id
    try:
        if status.code == 0 and not sessions.load(session).native_id:
            write_settled(sessions, session, Confirmed(native_id=conversation.found()))
        finish()
        write_end(sessions, attempt.record, status)
        attempt.lock.unsettled = status.survivors > 0
    except (OSError, LaunchError) as error:
        attempt.lock.unsettled = True
        notices.say(f"how the run ended could not be written down: {error}")


@dataclass(frozen=True, slots=True)
class _Begun:
    """An agent that runs, and what it was asked for in the end."""

    agent: AgentRequest
    plan: LaunchPlan
    process: AgentProcess
    channel: LineChannel | None
    confirmed: Confirmed


def _begin(
    attempt: Attempt, agent: AgentRequest, memory: Memory | None, plan: LaunchPlan
) -> _Begun:
    """Start the agent and do its handshake.

    It is started again without a flag that it died of, or as the version that it says it is.
    """
    while True:
        process = spawn(_spawn_request(attempt, memory, plan))
        with contextlib.ExitStack() as failed:
            failed.callback(_end, attempt, agent, process)
            channel = _channel(process, plan.framing, attempt.request.mode)
            confirmed = Confirmed()
            try:
                if isinstance(channel, JsonLinesChannel):
                    grant = memory.grant if memory else None
                    confirmed = control(attempt, channel, agent, grant, plan)
            except AgentFailed as error:
                agent = without_unknown(attempt, agent, error)
            else:
                found = as_it_says(attempt, agent, confirmed)
                if found == agent:
                    failed.pop_all()
                    return _Begun(agent, plan, process, channel, confirmed)
                agent = found
        files = plan.files
        agent, plan, _ = plan_launch(attempt, agent, memory)
        if plan.files != files:  # which are in place by now
            message = f"{' '.join(agent.command)} was another version when it started; launch again"
            raise AgentFailed(message)


def _end(attempt: Attempt, agent: AgentRequest, process: AgentProcess) -> None:
    """End an agent whose launch fails; nothing of it is cut short."""
    end(process, held(attempt.target.provider.shutdown, Shutdown)(agent))


def _end_refused(
    sessions: SessionStore, session: str, process: AgentProcess, ending: Shutdown, reason: str
) -> None:
    """End a run from within, and write down why."""
    try:
        write_unsettled(sessions, session, reason)
    finally:
        begin_end(process, ending)


def _spawn_request(attempt: Attempt, memory: Memory | None, plan: LaunchPlan) -> SpawnRequest:
    stdio = _stdio(attempt, plan)
    return SpawnRequest(
        argv=plan.argv,
        environment=run_environment(
            attempt.target.environment,
            additions=plan.environment,
            without=plan.without,
            memory=_variables(memory),
        ),
        cwd=attempt.target.cwd,
        marker=attempt.record.marker,
        stdio=stdio,
        identity=attempt.target.identity,
        rows=attempt.request.rows,
        columns=attempt.request.columns,
        hold=(attempt.lock.descriptor,),
        stderr_copy=2 if plan.driven or attempt.request.mode is Mode.PASSTHROUGH else None,
    )


def _stdio(attempt: Attempt, plan: LaunchPlan) -> Stdio:
    """Choose the agent's stdio; another user, or a program that drives, never gets the caller's."""
    mode = attempt.request.mode
    if plan.driven:
        if not attempt.request.relayed:
            message = (
                "these arguments let a program drive the agent over stdio, and nobody here would "
                "carry its messages; use Mode.STREAM, whose channel holds them"
            )
            raise BadRequest(message)
        return Stdio.PIPES
    if mode is Mode.TERMINAL and attempt.request.pty:
        return Stdio.PTY
    if attempt.target.identity is None:
        return STDIO[mode]
    return Stdio.PTY if mode is Mode.TERMINAL else Stdio.PIPES


def _variables(memory: Memory | None) -> MemoryVariables | None:
    return memory.variables if memory else None


def _channel(process: AgentProcess, framing: Framing, mode: Mode) -> LineChannel | None:
    match framing:
        case Framing.JSON_RPC:
            return JsonRpcChannel(process)
        case Framing.JSON_LINES:
            return JsonLinesChannel(process)
        # In the other modes the pipes of another user's agent are relayed to the caller.
        case Framing.LINES if mode is Mode.STREAM:
            return LineChannel(process)
        case _:
            return None


def _end_lease(host: Host, launch_id: str) -> None:
    """End the run's credential; a Hub that is away forgets it when the lease is over."""
    HUBS.let_go(launch_id)
    LEASES.let_go(launch_id)
    with contextlib.suppress(HubError), hub_client(host) as hub:
        hub.end_launch(launch_id)
