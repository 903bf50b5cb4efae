"""The probe with model turns: what a real agent sends when it is launched with memory.

It is the acceptance test for amux's own providers.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from amux.errors import AmuxError
from amux.hub.client import HubClient
from amux.hub.connection import connection_path
from amux.hub.values import GetRequest
from amux.launcher.errors import ChannelError
from amux.launcher.launch import launch
from amux.launcher.probe.findings import Finding, ProbeReport
from amux.launcher.probe.prober import DOCUMENT, PROMPT, step_of
from amux.launcher.probe.scene import NATIVE, USERS, Scene, scene
from amux.launcher.probe.screen import attend
from amux.launcher.probe.subagents import KINDS, Told, is_child
from amux.launcher.probe.talk import take_turn
from amux.launcher.session.store import SessionStore
from amux.providers.base import Mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.probe.turns import Turn
    from amux.launcher.report import LaunchReport
    from amux.launcher.run import Run

SECONDS: Final = 60.0
TOOLS: Final = ("memory_search", "memory_get", "memory_upsert", "memory_forget", "result_continue")
OWN: Final = {
    "Claude's own cch": re.compile(r"(x-anthropic-billing-header: [^\"]*?\bcch=)[0-9a-f]+"),
    "Claude's own count of tokens": re.compile(r"(<total_tokens>)\d+ tokens left"),
}
"""What the agent writes anew into each request, also without amux."""
NOT_SHOWN: Final = (
    "what a live model decides: when it searches, saves or forgets",
    "settings of this machine's real home, and of an account that is logged in",
)


@dataclass(slots=True)
class _Sight:
    """What was seen so far."""

    stage: Scene
    findings: list[Finding] = field(default_factory=list)

    def add(self, subject: str, observed: str, source: str, *, passed: bool) -> None:
        self.findings.append(
            Finding(subject=subject, observed=observed, passed=passed, source=source)
        )

    def turn(self, run: Run, step: str) -> Turn:
        """Take one turn and return its last request of the agent itself."""
        take_turn(
            self.stage.provider.name,
            run.channel,
            PROMPT.format(step=step),
            native_id=run.report.native_id,
            deadline=SECONDS,
        )
        asked = [turn for turn in self.stage.model.turns if turn.tools and step_of(turn) == step]
        if not asked:
            message = f"the agent ended the turn `{step}` without asking the model with its tools"
            raise ChannelError(message)
        return asked[-1]


def probe_turns(name: str, executable: Path | None) -> ProbeReport:
    """Probe one agent with model turns; what fails is a finding, not an exception.

    Raises UnknownProvider, or LaunchError for an agent that no stage is known for.
    """
    report: LaunchReport | None = None
    with scene(name, executable) as stage:
        sight = _Sight(stage)
        try:
            report = _carry_out(sight)
        except AmuxError as error:
            sight.add("launch", f"{error.code}: {error}", "amux", passed=False)
    return ProbeReport(
        provider=name,
        version=report.agent_version if report else None,
        command=report.command if report else (),
        shown_for=(),
        findings=tuple(sight.findings),
        not_shown=NOT_SHOWN,
    )


def _carry_out(sight: _Sight) -> LaunchReport:
    stage = sight.stage
    with launch(stage.request(), stage.host) as run:
        _look_at_launch(sight, run.report)
        first = sight.turn(run, "plain")
        _look_at_request(sight, run, first)
        sight.turn(run, "tools")
        _look_at_tools(sight)
        after = sight.turn(run, "environment")
        _look_at_shell(sight, run.report)
        _prefix(sight, "prefix over turns and a memory write", first, after)
        child = _children(sight, run)
    report = run.report
    with launch(stage.request(session=report.session), stage.host) as run:
        resumed = sight.turn(run, "resumed")
        _prefix(sight, "prefix over a resume", child or after, resumed)
        _protocol_once(sight, "protocol after a resume", run, resumed)
        _compaction(sight, run)
    _on_the_screen(sight)
    return report


def _look_at_launch(sight: _Sight, report: LaunchReport) -> None:
    sight.add(
        "binding", report.binding or str(report.unbound), "report", passed=bool(report.binding)
    )
    for one in report.controls:
        sight.add(one.control, one.observed, one.source, passed=True)
    for warning in report.warnings:
        sight.add("warning", warning, "report", passed=True)


def _look_at_request(sight: _Sight, run: Run, turn: Turn) -> None:
    native = json.dumps(turn.body).count(NATIVE)
    sight.add(
        "native memory text", "absent" if not native else "present", "model", passed=not native
    )
    _protocol_once(sight, "protocol", run, turn)
    protocol = _protocol(sight, run)
    users, ours = turn.system.find(USERS), turn.system.find(protocol)
    sight.add(
        "order",
        "the user's own instructions, then the protocol" if 0 <= users < ours else "another one",
        "model",
        passed=0 <= users < ours,
    )
    if sight.stage.mind.cli:
        return
    offered = [name for name in TOOLS if turn.tool(name) is not None]
    sight.add("tools offered", ", ".join(offered), "model", passed=len(offered) == len(TOOLS))


def _protocol(sight: _Sight, run: Run) -> str:
    return SessionStore(sight.stage.host.home).load(run.report.session).protocol.strip()


def _protocol_once(sight: _Sight, subject: str, run: Run, turn: Turn) -> None:
    marker = _protocol(sight, run).splitlines()[-1]
    count = json.dumps(turn.body, ensure_ascii=False).count(
        json.dumps(marker, ensure_ascii=False)[1:-1]
    )
    observed = "once in the request" if count == 1 else f"{count} times in the request"
    sight.add(subject, observed, "model", passed=count == 1)


def _look_at_tools(sight: _Sight) -> None:
    answers = sight.stage.mind.results.get("tools", [])
    names = ("search", "upsert", "get", "forget")
    for name, answer in zip(names, answers, strict=False):
        failed = '"error"' in answer or "unavailable" in answer
        sight.add(f"{name} reaches the Hub", answer[:200], "tool result", passed=not failed)
    for name in names[len(answers) :]:
        sight.add(f"{name} reaches the Hub", "it was never called", "tool result", passed=False)
    with HubClient.from_file(connection_path(sight.stage.host.home, "user")) as hub:
        there = hub.get(GetRequest(path=DOCUMENT)).exists
    sight.add(
        "the document in the end", "still there" if there else "forgotten", "Hub", passed=not there
    )


def _look_at_shell(sight: _Sight, report: LaunchReport) -> None:
    seen = sight.stage.mind.results.get("environment") or ["the agent offered no shell"]
    found = re.search(r"binding=\S* amux=\S*", seen[0])
    observed = found.group() if found else seen[0]
    passed = observed.startswith(f"binding={report.binding} ")
    sight.add("the agent's shell", observed, "tool result", passed=passed)


def _children(sight: _Sight, run: Run) -> Turn | None:
    """Let the agent start each kind of sub-agent that it has, and say what it is told."""
    stage = sight.stage
    if stage.provider.name not in KINDS:
        sight.add("sub-agent", "the agent has none", "model", passed=True)
        return None
    last = None
    for number, kind in enumerate(KINDS[stage.provider.name]):
        stage.mind.kind = kind
        before = len(stage.model.turns)
        last = sight.turn(run, f"child{number}")
        if not stage.mind.results.get(f"child{number}"):
            sight.add("sub-agent", "the agent offers none to this model", "model", passed=True)
            return last
        child = stage.model.wait_for(functools.partial(_fresh, sight, before), deadline=SECONDS)
        told = Told.of(child, _protocol(sight, run))
        sight.findings.append(told.finding(kind, Mode.STREAM, run.report))
    return last


def _on_the_screen(sight: _Sight) -> None:
    """Start each kind of sub-agent from the agent's own screen, too."""
    stage = sight.stage
    if Mode.TERMINAL not in stage.provider.capabilities.modes:
        return
    for number, kind in enumerate(KINDS.get(stage.provider.name, ())):
        stage.mind.kind = kind
        before = len(stage.model.turns)
        request = stage.on_screen(PROMPT.format(step=f"child_on_screen{number}"))
        with launch(request, stage.host) as run:
            begun = functools.partial(_begun, sight, before)
            attend(run, begun, deadline=SECONDS)
            child = next(one for one in stage.model.turns if _fresh(sight, before, one))
            told = Told.of(child, _protocol(sight, run))
            sight.findings.append(told.finding(kind, Mode.TERMINAL, run.report))


def _fresh(sight: _Sight, before: int, turn: Turn) -> bool:
    """Say whether a request is a sub-agent's, and not among those before."""
    return is_child(turn) and all(turn is not one for one in sight.stage.model.turns[:before])


def _begun(sight: _Sight, before: int) -> bool:
    return any(is_child(one) for one in sight.stage.model.turns[before:])


def _compaction(sight: _Sight, run: Run) -> None:
    """Compact the conversation, by whatever means the agent has for it, and take one more turn."""
    name, channel = sight.stage.provider.name, run.channel
    if name == "codex":
        thread = {"threadId": run.report.native_id}
        channel.request("thread/compact/start", thread, deadline=SECONDS)
        _until(run, lambda message: message.get("method") == "turn/completed")
    elif name in {"claude", "claude-sdk"}:
        take_turn(name, channel, "/compact", native_id=None, deadline=SECONDS)
    elif name == "pi":
        channel.send({"type": "compact"})
        _until(run, lambda message: message.get("command") == "compact")
    else:
        return
    _protocol_once(sight, "protocol after compaction", run, sight.turn(run, "compacted"))


def _until(run: Run, wanted: Callable[[dict[str, Any]], bool]) -> None:
    while not wanted(run.channel.receive(deadline=SECONDS)):
        pass


def _prefix(sight: _Sight, subject: str, before: Turn, after: Turn) -> None:
    differs = differences(before.body, after.body)
    observed = f"changed: {', '.join(differs)}" if differs else "byte-identical"
    own = [name for name, pattern in OWN.items() if pattern.search(json.dumps(after.body))]
    if own and not differs:
        observed = f"byte-identical, {' and '.join(own)} aside"
    sight.add(subject, observed, "model", passed=not differs)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Name what is another in the later request of a conversation than in the earlier one."""
    early, late = _parts(before), _parts(after)
    differs = [name for name in early if name != "items" and early[name] != late[name]]
    items = len(early["items"])
    if early["items"] != late["items"][:items]:
        differs.append("earlier messages")
    return differs


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    """Return what a provider's cache goes by, without the marks that only move the cache's end."""
    plain = _without(body, "cache_control")
    items = plain.get("input") or plain.get("messages") or []
    return {
        "tools": _steady(plain.get("tools")),
        "instructions": _steady(plain.get("instructions") or plain.get("system")),
        "items": [_steady(item) for item in items],
    }


def _steady(value: object) -> str:
    """Return a part as JSON, less what the agent itself changes from request to request."""
    text = json.dumps(value)
    for pattern in OWN.values():
        text = pattern.sub(r"\1", text)
    return text


def _without(value: Any, name: str) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, dict):
        if isinstance(value.get("content"), str):
            # Claude writes a text as a list of one as soon as it carries a mark.
            value = {**value, "content": [{"type": "text", "text": value["content"]}]}
        return {key: _without(item, name) for key, item in value.items() if key != name}
    if isinstance(value, list):
        return [_without(item, name) for item in value]
    return value
