"""A text of sub-agents' own keeps its place in Codex, and the protocol comes after it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.launch import launch
from amux.launcher.probe.model import Call, Say, ScriptedModel
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from amux.providers.base import Mode
from amux.providers.errors import BadArguments
from fixtures.codex import PROTOCOL, grant_for, make_home, native, open_codex, staged
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS
from tests.e2e.test_codex_native_memory import system_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from amux.launcher.run import Run
    from amux.launcher.session.store import SessionRecord
    from fixtures.codex import CodexHome

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]

OWN = "Sub-agents answer in verse."
USERS = "Answer in prose."
KEY = "features.multi_agent_v2.subagent_developer_instructions"
TABLE = f'[features.multi_agent_v2]\nenabled = true\nsubagent_developer_instructions = "{OWN}"\n'
KEEPS_PREFIX = "0.171.0"
"""Its sub-agents that take the conversation along are sent their parent's first items as well."""


@dataclass
class Crew:
    """A model that hands a task to a sub-agent, which takes so much of the conversation along."""

    fork: str = "none"
    failures: list[str] = field(default_factory=list)

    def __call__(self, turn: Turn) -> Answer:
        if is_child(turn):
            return Say("child done")
        spawn, wait = turn.tool("spawn_agent"), turn.tool("wait_agent")
        if spawn is None or wait is None:
            self.failures.append(", ".join(tool.full_name for tool in turn.tools))
            return Say("no sub-agents")
        done, asked = len(turn.results), sum(text.startswith("PARENT") for text in turn.user)
        if done == 2 * asked:
            return Say("parent done")
        if done % 2:
            return Call(wait, {"timeout_ms": 10_000})
        task = {"task_name": f"look{done}", "message": "CHILD, do it"}
        return Call(spawn, {**task, "fork_turns": self.fork})


def is_child(turn: Turn) -> bool:
    return turn.headers.get("x-openai-subagent") == "collab_spawn"


@dataclass(frozen=True, slots=True)
class Place:
    """A Runtime, a home of Codex in which sub-agents have a text of their own, and its model."""

    host: Host
    home: CodexHome
    model: ScriptedModel
    crew: Crew

    def wanted(self, *words: str, session: str | None = None) -> LaunchRequest:
        return LaunchRequest(
            provider="" if session else "codex",
            session=session,
            mode=Mode.PASSTHROUGH if words else Mode.STREAM,
            arguments=words,
            cwd=self.home.cwd,
            environment=dict(self.home.environment),
            executable=native(self.home.version),
        )

    def executed(self, *words: str) -> Run:
        """Run `codex exec` to its end."""
        asked = self.wanted("exec", "--skip-git-repo-check", *words)
        with launch(asked, self.host) as run:
            ended = run.wait(SECONDS)
            assert ended is not None
            assert ended.code == 0
        return run

    def record(self, run: Run) -> SessionRecord:
        return SessionStore(self.host.home).load(run.report.session)

    def child(self, count: int = 1) -> Turn:
        """Return the first request of the sub-agent that was started last."""
        assert self.crew.failures == []
        children = [turn for turn in self.model.turns if is_child(turn)]
        assert len(children) == count
        return children[-1]


@pytest.fixture
def place(host: Host, tmp_path: Path, version: str) -> Iterator[Place]:
    crew = Crew()
    with ScriptedModel(crew) as model:
        home = make_home(tmp_path / "home", version, model.url)
        home.trust()
        home.configure(TABLE, first=f'developer_instructions = "{USERS}"')
        yield Place(host, home, model, crew)


def turn(run: Run, text: str = "PARENT") -> None:
    take_turn("codex", run.channel, text, native_id=run.report.native_id, deadline=SECONDS)


def told(turn: Turn, text: str) -> int:
    """Count a text in the whole request; Codex sends it without the end of its last line."""
    return json.dumps(turn.body).count(json.dumps(text.rstrip())[1:-1])


def said(run: Run) -> list[str]:
    return [one.observed for one in run.report.controls if one.control == "protocol in sub-agents"]


def about(run: Run) -> list[str]:
    return [text for text in run.report.warnings if "multi_agent_v2" in text]


@pytest.mark.parametrize("fork", ["none", "all"])
def test_sub_agents_of_the_channel_get_their_own_text_and_the_protocol(
    place: Place, version: str, fork: str
) -> None:
    place.crew.fork = fork
    with launch(place.wanted(), place.host) as run:
        turn(run)
    child, record = place.child(), place.record(run)
    merged = f"{OWN}\n\n{record.protocol}"
    assert told(child, merged) == 1
    taken_along = fork == "all" and version == KEEPS_PREFIX
    assert told(child, record.protocol) == (2 if taken_along else 1)
    assert told(place.model.turns[0], OWN) == 0
    assert record.subagent_instructions == merged
    assert said(run) == ["appended"]
    assert about(run) == []
    assert not any("sub-agent" in text for text in record.warnings)


def test_every_thread_of_a_supervisor_hands_the_same_text_to_its_sub_agents(
    place: Place, version: str
) -> None:
    del version
    own = {"features": {"multi_agent_v2": True}, "model_verbosity": "low"}
    options = {"thread-config": json.dumps(own)}
    with launch(replace(place.wanted(), options=options), place.host) as run:
        turn(run)
        merged = f"{OWN}\n\n{place.record(run).protocol}"
        assert told(place.child(), merged) == 1
        for count, config in enumerate((own, {"features.multi_agent_v2": {"enabled": True}}, None)):
            params = {"cwd": str(place.home.cwd)} | ({} if config is None else {"config": config})
            answer = run.channel.request("thread/start", params, deadline=SECONDS)
            native_id = str(answer["thread"]["id"])
            take_turn("codex", run.channel, "PARENT", native_id=native_id, deadline=SECONDS)
            assert told(place.child(count + 2), merged) == 1


def test_a_thread_in_a_folder_with_a_text_that_the_launch_has_not_is_refused(
    place: Place, version: str
) -> None:
    del version
    settings = place.home.codex / "config.toml"
    settings.write_text(settings.read_text().replace(TABLE, ""))
    there = place.home.folder / "there"
    (there / ".codex").mkdir(parents=True)
    (there / ".codex" / "config.toml").write_text(TABLE)
    place.home.configure(f'[projects."{there}"]\ntrust_level = "trusted"\n')
    with launch(place.wanted(), place.host) as run:
        with pytest.raises(BadArguments, match=f"{there} sets {KEY}"):
            run.channel.request("thread/start", {"cwd": str(there)}, deadline=SECONDS)
        run.channel.request("thread/start", {"cwd": str(place.home.cwd)}, deadline=SECONDS)
        place.home.configure(TABLE)  # it counts for the next thread of a server that runs
        with pytest.raises(BadArguments, match=f"sets {KEY}"):
            run.channel.request("thread/start", {}, deadline=SECONDS)


def test_sub_agents_of_codex_exec_get_their_own_text_and_the_protocol(
    place: Place, version: str
) -> None:
    del version
    words = ("-c", f'{KEY}="As the flag says."')
    run = place.executed(*words, "PARENT")
    record = place.record(run)
    merged = f"As the flag says.\n\n{record.protocol}"
    assert told(place.child(), merged) == told(place.child(), record.protocol) == 1
    assert record.subagent_instructions == merged
    assert said(run) == ["appended"]
    assert about(run) == []


@pytest.mark.parametrize("words", [(), ("exec", "--skip-git-repo-check", "PARENT again")])
def test_a_resume_sends_sub_agents_the_text_that_the_session_froze(
    place: Place, version: str, words: tuple[str, ...]
) -> None:
    del version
    with launch(place.wanted(), place.host) as run:
        turn(run)
    frozen = place.record(run)
    settings = place.home.codex / "config.toml"
    settings.write_text(settings.read_text().replace(OWN, "Sub-agents draw."))
    with launch(place.wanted(*words, session=frozen.id), place.host) as again:
        if words:
            ended = again.wait(SECONDS)
            assert ended is not None
            assert ended.code == 0
        else:
            turn(again, "PARENT again")
    assert told(place.child(2), frozen.subagent_instructions) == 1
    assert told(place.child(2), "Sub-agents draw.") == 0
    assert place.record(again).subagent_instructions == frozen.subagent_instructions


def test_a_session_that_froze_no_such_text_is_resumed_with_one(place: Place, version: str) -> None:
    del version
    settings = place.home.codex / "config.toml"
    configured = settings.read_text()
    settings.write_text(configured.replace(TABLE, "[features]\nmulti_agent_v2 = true\n"))
    with launch(place.wanted(), place.host) as run:
        turn(run)
    record = place.record(run)
    assert record.subagent_instructions == ""
    assert told(place.child(), record.instructions) == 1
    assert said(run) == []
    settings.write_text(configured)
    with launch(place.wanted(session=record.id), place.host) as again:
        turn(again, "PARENT again")
    assert told(place.child(2), f"{OWN}\n\n{record.protocol}") == 1
    assert place.record(again).subagent_instructions == f"{OWN}\n\n{record.protocol}"


def test_an_empty_text_of_sub_agents_own_gets_the_protocol_too(place: Place, version: str) -> None:
    del version
    settings = place.home.codex / "config.toml"
    settings.write_text(settings.read_text().replace(OWN, ""))
    with launch(place.wanted(), place.host) as run:
        turn(run)
    assert told(place.child(), place.record(run).protocol) == 1
    assert told(place.child(), USERS) == 0
    assert said(run) == ["appended"]


@pytest.mark.root
def test_a_managed_text_stands_above_amux_which_the_report_says(
    tmp_path: Path, version: str
) -> None:
    crew = Crew()
    with staged(tmp_path / "home", version, crew) as stage:
        wrapper = system_file(tmp_path, "managed_config.toml", TABLE)
        with open_codex(stage.home, grant_for(stage.home), wrapper=wrapper) as codex:
            codex.turn("PARENT")
        (child,) = [turn for turn in stage.model.turns if is_child(turn)]
        assert told(child, OWN) == 1
        assert told(child, PROTOCOL) == 0
        controls = {one.control: one for one in codex.confirmed.evidence}
        assert controls["protocol in sub-agents"].observed == "absent"
        assert controls["protocol in sub-agents"].source == "/etc/codex/managed_config.toml"
        assert codex.confirmed.subagent_instructions is None
        (named,) = [text for text in codex.warnings if KEY in text]
        assert named.startswith("/etc/codex/managed_config.toml sets")


def test_a_folder_that_codex_trusts_by_itself_adds_its_text_for_sub_agents(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version, Crew()) as stage:
        (stage.home.cwd / ".codex").mkdir()
        (stage.home.cwd / ".codex" / "config.toml").write_text(TABLE)
        arguments = ("--sandbox", "workspace-write")
        with open_codex(stage.home, grant_for(stage.home), arguments=arguments) as codex:
            codex.turn("PARENT")
        (child,) = [turn for turn in stage.model.turns if is_child(turn)]
        assert told(child, f"{OWN}\n\n{PROTOCOL}") == told(child, PROTOCOL) == 1
        assert codex.confirmed.subagent_instructions == f"{OWN}\n\n{PROTOCOL}"
