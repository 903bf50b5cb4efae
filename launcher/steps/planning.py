"""Ask the provider: for its plan, and for what the agent's own answers confirm."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from amux.launcher.channel.jsonlines import Controls
from amux.launcher.errors import AgentFailed, ChannelError, LaunchError, MemoryNotIsolated
from amux.launcher.provider_call import held
from amux.launcher.steps.environment import run_environment
from amux.launcher.steps.hints import no_conversation
from amux.launcher.steps.preflight import PreflightMemory, run_preflight
from amux.launcher.steps.read_files import read_facts
from amux.materializer import runs
from amux.providers.base import AgentRequest, Confirmed, Facts, Framing, LaunchPlan, Mode, Preflight
from amux.providers.errors import NotConfirmed, ProviderFailed, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.channel.jsonlines import JsonLinesChannel
    from amux.launcher.channel.stdio_relay import Driving
    from amux.launcher.memory.grant import Memory
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import Grant, JsonObject


def agent_request(attempt: Attempt, memory: Memory | None) -> AgentRequest:
    """Return what the provider may know, with the environment that the agent will have."""
    target = attempt.target
    environment = run_environment(target.environment, memory=memory.variables if memory else None)
    for name in target.provider.path_variables:
        if environment.get(name):
            environment[name] = os.path.realpath(Path(target.cwd, environment[name]))
    return AgentRequest(
        command=target.command.argv,
        version=target.version,
        arguments=target.arguments,
        mode=attempt.request.mode,
        cwd=target.cwd,
        home=target.home,
        environment=environment,
        interpreter=sys.executable,
        fresh_id=str(uuid.uuid4()),
        outer_homes=_outer_homes(attempt),
        resume=target.resume,
        options=attempt.request.options,
        conversations=frozenset(attempt.record.conversations),
        began=time.time(),
    )


def _outer_homes(attempt: Attempt) -> tuple[str, ...]:
    """Return the names of the caller's home where it is around the folder, and not the agent's."""
    home = attempt.request.environment.get("HOME", "")
    relocated = attempt.target.identity is not None or attempt.record.private_home
    if not relocated or not home.startswith("/"):
        return ()
    real, agents = os.path.realpath(home), os.path.realpath(attempt.target.home)
    inside = os.path.commonpath((real, os.path.realpath(attempt.target.cwd))) == real
    if real in {agents, "/"} or not inside:
        return ()
    return tuple(dict.fromkeys((home.rstrip("/"), real)))


def plan_launch(
    attempt: Attempt, agent: AgentRequest, memory: Memory | None
) -> tuple[AgentRequest, LaunchPlan, Confirmed]:
    """Ask the provider for its plan; a pre-flight that it wants first is run and answered.

    A pre-flight that dies of a flag of amux's own is run without it, and so is the agent: the
    request that is returned says which flags those are. One that says it is another version than
    was asked is planned anew, as that version.
    """
    while True:
        try:
            plan, confirmed = _plan_known(attempt, agent, memory)
        except AgentFailed as error:
            agent = without_unknown(attempt, agent, error)
            continue
        found = as_it_says(attempt, agent, confirmed)
        if plan is not None and found == agent:
            return agent, plan, confirmed
        agent = found


def as_it_says(attempt: Attempt, agent: AgentRequest, confirmed: Confirmed) -> AgentRequest:
    """Return the request for the version that the agent itself says it is.

    Raises AgentFailed where it says another one each time.
    """
    if confirmed.version in ("", agent.version):
        return agent
    if agent.version != attempt.target.version:
        message = (
            f"{' '.join(agent.command)} is another version each time that it is started: "
            f"{attempt.target.version}, {agent.version}, {confirmed.version}; name the agent "
            "itself with --executable"
        )
        raise AgentFailed(message)
    return replace(agent, version=confirmed.version)


def without_unknown(attempt: Attempt, agent: AgentRequest, error: AgentFailed) -> AgentRequest:
    """Return the request for an agent that died of a flag of amux's own, else raise `error`."""
    flag = held(attempt.target.provider.unknown_flag, str)(agent, error.stderr)
    if not flag or flag in agent.unknown:
        raise error
    return replace(agent, unknown=agent.unknown | {flag})


def _plan_known(
    attempt: Attempt, agent: AgentRequest, memory: Memory | None
) -> tuple[LaunchPlan | None, Confirmed]:
    """Plan for the version that the request names; no plan where the pre-flight says another."""
    provider = attempt.target.provider
    grant = memory.grant if memory else None
    facts = _facts(attempt, agent)
    compute = held(provider.plan, LaunchPlan, Preflight)
    step = compute(agent, grant, facts)
    if isinstance(step, LaunchPlan):
        _check_framing(attempt, step)
        own = step.subagent_instructions
        return step, Confirmed(instructions=step.instructions, subagent_instructions=own)
    if grant is None:
        message = f"{provider.name} asked for a pre-flight of a launch without memory"
        raise LaunchError(message)
    confirmed = _preflight(attempt, step, agent, grant)
    if confirmed.version not in {"", agent.version}:
        return None, confirmed
    plan = compute(agent, grant, facts, confirmed)
    if isinstance(plan, Preflight):
        message = f"{provider.name} asked for a second pre-flight"
        raise LaunchError(message)
    _check_framing(attempt, plan)
    return plan, confirmed


def _facts(attempt: Attempt, agent: AgentRequest) -> Facts:
    """Read what the provider asks about, and what that leads to."""
    provider, identity = attempt.target.provider, attempt.target.identity
    searches = held(provider.files_to_search, tuple)(agent)
    facts = read_facts(held(provider.files_to_read, tuple)(agent), identity, searches)
    # Files of the run are not in place yet.
    given = {str(attempt.paths.config / one.name): one.content for one in attempt.given}
    facts = Facts({**facts.files, **given}, facts.found)
    further = held(provider.more_files_to_read, tuple)(agent, facts)
    if not further:
        return facts
    return Facts({**facts.files, **read_facts(further, identity).files, **given}, facts.found)


def _check_framing(attempt: Attempt, plan: LaunchPlan) -> None:
    """Refuse a channel on stdio that is the caller's own."""
    mode, name = attempt.request.mode, attempt.target.provider.name
    if mode is not Mode.STREAM and plan.framing in {Framing.JSON_RPC, Framing.JSON_LINES}:
        message = (
            f"the provider {name} planned a {plan.framing} channel in {mode} mode, "
            "where the agent's stdio is the caller's"
        )
        raise ProviderFailed(message)


def _preflight(attempt: Attempt, step: Preflight, agent: AgentRequest, grant: Grant) -> Confirmed:
    left: list[str] = []
    with contextlib.ExitStack() as undo:
        if step.files:
            runs.apply(attempt.paths, step.files, attempt.target.identity, left.append)
            undo.callback(runs.remove, attempt.paths, left.append)
        try:
            attempt.use_account()
            confirmed = run_preflight(
                step,
                attempt.target.provider,
                agent,
                grant,
                identity=attempt.target.identity,
                marker=attempt.record.marker,
                memory=PreflightMemory(attempt.host.preflights),
            )
        except NotConfirmed as error:
            raise MemoryNotIsolated(str(error)) from error
    return replace(confirmed, warnings=(*confirmed.warnings, *left))


def control(
    attempt: Attempt,
    channel: JsonLinesChannel,
    agent: AgentRequest,
    grant: Grant | None,
    plan: LaunchPlan,
) -> Confirmed:
    """Do the handshake on the agent's own channel and confirm the controls."""
    provider = attempt.target.provider
    try:
        return held(provider.handshake, Confirmed)(channel, agent, grant, plan)
    except NotConfirmed as error:
        raise MemoryNotIsolated(str(error)) from error
    except RequestRefused as error:
        hint = _hint(attempt, error)
        if not hint:
            raise
        raise AgentFailed(f"{error}; {hint}") from error
    except (ChannelError, AgentFailed) as error:
        who = f"{provider.name} {attempt.target.version}"
        hint = _hint(attempt, error)
        why = f"{hint}. It said: {error}" if hint else str(error)
        failure = type(error)(f"{who} did not get through its handshake: {why}")
        if isinstance(error, AgentFailed) and isinstance(failure, AgentFailed):
            failure.stderr = error.stderr
        raise failure from error


def _hint(attempt: Attempt, error: Exception) -> str:
    if attempt.target.stored is None:
        return ""
    return no_conversation(attempt.target.provider, attempt.target.stored.id, str(error))


def together(before: Confirmed, now: Confirmed) -> Confirmed:
    """Add what the agent's channel established to what a pre-flight did."""
    again = {one.control for one in now.evidence}
    earlier = (one for one in before.evidence if one.control not in again)
    return Confirmed(
        evidence=(*earlier, *now.evidence),
        instructions=now.instructions or before.instructions,
        subagent_instructions=now.subagent_instructions or before.subagent_instructions,
        native_id=now.native_id or before.native_id,
        warnings=(*before.warnings, *now.warnings),
        version=now.version or before.version,
    )


def controls(  # noqa: PLR0913  # what a request is held to, and who hears of it
    attempt: Attempt,
    channel: JsonLinesChannel,
    agent: AgentRequest,
    confirmed: Confirmed,
    *,
    on_evidence: Callable[[Confirmed], None],
    on_contradiction: Callable[[str], None],
) -> Controls:
    """Hold the supervisor's own requests to what the launch confirmed.

    `on_evidence` hears what was established about a conversation that a request opened,
    `on_contradiction` why it cannot be held to the launch.
    """
    provider, instructions = attempt.target.provider, confirmed.instructions or ""
    admit, outgoing = held(provider.check_request), held(provider.rewrite_request, dict)
    own = confirmed.subagent_instructions
    opened = held(provider.on_response, Confirmed, NoneType)
    known = set(agent.conversations) | {confirmed.native_id or ""}

    def before(method: str, params: JsonObject) -> JsonObject:
        # A provider that knows of no text for sub-agents need not take one.
        more = {} if own is None else {"subagent_instructions": own}
        asked: JsonObject = outgoing(method, params, instructions, **more)
        admit(channel, method, asked, frozenset(known))
        return asked

    def after(method: str, result: JsonObject) -> None:
        try:
            found = opened(channel, method, result, agent)
        except (NotConfirmed, ProviderFailed) as error:
            on_contradiction(str(error))
            raise
        if found is not None:
            known.add(found.native_id or "")
            on_evidence(found)

    return Controls(before=before, after=after)


def driving(attempt: Attempt, instructions: str, watch: Callable[[JsonObject], None]) -> Driving:
    """Hold a program that drives the agent over the caller's stdio to what the launch confirmed."""
    from amux.launcher.channel.stdio_relay import Driving  # noqa: PLC0415  # few launches are driven

    provider = attempt.target.provider
    outgoing = held(provider.rewrite_request, dict)
    return Driving(
        hold=lambda message: outgoing(str(message.get("type")), message, instructions),
        refusal=held(provider.error_response, dict, NoneType),
        watch=watch,
    )
