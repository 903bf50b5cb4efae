"""What Codex's own conversation shows of a launch, and what one brings along that amux left."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import MemoryRequired
from amux.launcher.launch import launch
from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from amux.providers.base import Mode, TranscriptPart
from amux.providers.codex import CodexProvider
from amux.providers.errors import BadArguments
from fixtures.codex import (
    MEMORY_ON,
    SUMMARY,
    agent_request,
    make_home,
    native,
    open_codex,
    resumed,
    say_ok,
)
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS
from tests.e2e.test_codex_instructions import Parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Script
    from amux.launcher.run import Run
    from amux.providers.base import Sighting
    from fixtures.codex import CodexHome

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]


@contextlib.contextmanager
def prepared(
    folder: Path, version: str, script: Script = say_ok
) -> Iterator[tuple[CodexHome, ScriptedModel]]:
    """Make a trusted home in which native memory is on and has something to tell."""
    with ScriptedModel(script) as model:
        home = make_home(folder / "home", version, model.url)
        home.trust()
        home.configure(MEMORY_ON)
        home.remember()
        yield home, model


def wanted(home: CodexHome, *, session: str | None = None, require: bool = False) -> LaunchRequest:
    return LaunchRequest(
        provider="" if session else "codex",
        session=session,
        cwd=home.cwd,
        environment=dict(home.environment),
        executable=native(home.version),
        require_memory=require,
    )


def turn(run: Run, text: str) -> None:
    take_turn("codex", run.channel, text, native_id=run.report.native_id, deadline=SECONDS)


def compact(run: Run) -> None:
    thread = {"threadId": run.report.native_id}
    run.channel.request("thread/compact/start", thread, deadline=SECONDS)
    while run.channel.receive(deadline=SECONDS).get("method") != "turn/completed":
        pass


def seen(host: Host, run: Run) -> dict[str, Sighting]:
    record = SessionStore(host.home).load(run.report.session)
    return {one.control: one for one in record.seen if one.source.startswith("rollout")}


def test_a_run_is_proved_by_what_stands_in_its_own_rollout(
    host: Host, tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, _):
        with launch(wanted(home), host) as run:
            turn(run, "hello")
            compact(run)
            turn(run, "again")
        found = seen(host, run)
        assert {name: one.observed for name, one in found.items()} == {
            "native memory": "absent",
            "protocol": "once",
        }
        assert found["protocol"].turn == 3
        record = SessionStore(host.home).load(run.report.session)
        assert [one for one in record.warnings if "memory is off" not in one] == []
        with launch(wanted(home, session=run.report.session, require=True), host) as again:
            assert not any(one.source.startswith("rollout") for one in again.report.seen)
            turn(again, "more")
        assert seen(host, again)["protocol"].observed == "unchanged"


def test_the_same_reading_finds_native_memory_where_codex_put_it(
    tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, model):
        with open_codex(home, None) as codex:
            codex.turn("hello")
        assert any(SUMMARY in one.system for one in model.turns)
        where = CodexProvider().transcripts(agent_request(home), codex.native_id)
        assert where is not None
        (path,) = home.codex.glob(f"sessions/*/*/*/*{codex.native_id}.jsonl")
        part = TranscriptPart(
            path=str(path),
            content=path.read_bytes(),
            protocol="THE PROTOCOL",
            instructions="THE PROTOCOL",
            native_id=codex.native_id,
            ours=True,
        )
        found = {one.control: one.observed for one in CodexProvider().read_transcript(part)}
        assert found == {"native memory": "present", "protocol": "absent"}


def test_a_conversation_that_was_compacted_without_amux_is_told_and_refused_where_required(
    host: Host, tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, model):
        with launch(wanted(home), host) as run:
            turn(run, "hello")
        native_id = run.report.native_id or ""
        with open_codex(home, None, resume=resumed(native_id)) as codex:
            codex.compact()
            codex.turn("native")
        with pytest.raises(MemoryRequired, match="its native memory into this conversation"):
            launch(wanted(home, session=run.report.session, require=True), host)
        with launch(wanted(home, session=run.report.session), host) as again:
            told = {one.control: one.observed for one in again.report.seen}
            turn(again, "back")
        assert told["native memory"] == "present"
        assert told["protocol"] == "absent"
        assert len([text for text in again.report.warnings if "without amux" in text]) == 2
        (last,) = [one for one in model.turns if one.user[-1:] == ("back",)]
        assert SUMMARY in last.system  # so what was told is so
        # The next compaction, which is amux's, takes it out and brings the protocol back.
        with launch(wanted(home, session=run.report.session), host) as third:
            compact(third)
            turn(third, "after")
        (last,) = [one for one in model.turns if one.user[-1:] == ("after",)]
        assert SUMMARY not in last.system
        assert seen(host, third)["protocol"].observed == "once"


@pytest.mark.parametrize("role", [None, "mole"])
def test_what_sub_agents_were_told_is_read_in_their_own_rollouts(
    host: Host, tmp_path: Path, version: str, role: str | None
) -> None:
    parent = Parent(role=role)
    with prepared(tmp_path, version, parent) as (home, _):
        (home.codex / "agents").mkdir()
        (home.codex / "agents" / "mole.toml").write_text(
            'name = "mole"\ndescription = "digs"\ndeveloper_instructions = "Dig."\n'
            "[features]\nmemory_tool = true\n[memories]\nuse_memories = true\n"
        )
        with launch(wanted(home), host) as run:
            turn(run, "PARENT")
        assert parent.failures == []
        found = seen(host, run)
    who = f"sub-agents ({role or 'default'})"
    assert found[f"native memory in {who}"].observed == "absent"
    assert found[f"protocol in {who}"].observed == ("once" if role is None else "absent")
    assert found["protocol"].observed == "once"


def test_a_supervisor_cannot_go_on_with_a_native_conversation_and_its_row_stays(
    host: Host, tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, model):
        with open_codex(home, None) as codex:
            codex.turn("native")
        with launch(wanted(home), host) as run:
            turn(run, "hello")
            params = {"threadId": codex.native_id}
            for method in ("thread/resume", "thread/fork"):
                with pytest.raises(BadArguments, match="did not begin in this session"):
                    run.channel.request(method, params, deadline=SECONDS)
                with pytest.raises(BadArguments, match="did not begin in this session"):
                    run.channel.send({"id": 99, "method": method, "params": params})
            second = run.channel.request("thread/start", {"cwd": str(home.cwd)}, deadline=SECONDS)
            native_id = str(second["thread"]["id"])
            take_turn("codex", run.channel, "second", native_id=native_id, deadline=SECONDS)
        assert home.modes().pop(codex.native_id) == "enabled"
        assert list(home.modes().values()).count("disabled") == 2
        record = SessionStore(host.home).load(run.report.session)
        assert record.conversations == (run.report.native_id, native_id)
        # A thread of an earlier run of the same session is the session's own.
        with launch(wanted(home, session=record.id), host) as again:
            again.channel.request("thread/resume", {"threadId": native_id}, deadline=SECONDS)
            take_turn("codex", again.channel, "third", native_id=native_id, deadline=SECONDS)
        bound = [
            one for one in model.turns if one.user[-1:] in {("hello",), ("second",), ("third",)}
        ]
        assert len(bound) == 3
        assert not any(SUMMARY in one.system for one in bound)


def test_a_conversation_of_amux_is_found_however_it_is_named(
    host: Host, tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, model):
        with open_codex(home, None) as codex:
            codex.turn("native")
        with launch(wanted(home), host) as run:
            turn(run, "hello")
            named = {"threadId": run.report.native_id, "name": "my plan"}
            run.channel.request("thread/name/set", named, deadline=SECONDS)
        for name in (("--last",), ("my plan",)):
            words = ("exec", "--skip-git-repo-check", "resume", *name, f"more {name[0]}")
            request = replace(wanted(home), mode=Mode.PASSTHROUGH, arguments=words)
            with launch(request, host) as again:
                ended = again.wait(SECONDS)
                assert ended is not None
                assert ended.code == 0
            assert again.report.session == run.report.session
            assert again.report.native_id == run.report.native_id
            assert again.report.binding is not None
            (last,) = [one for one in model.turns if one.user[-1:] == (f"more {name[0]}",)]
            assert "hello" in last.user
            assert SUMMARY not in last.system
            assert "MEMORY.md" in last.system
        found = seen(host, again)
        assert found["native memory"].observed == "absent"
        assert found["native memory"].turn == 1


def executed(host: Host, home: CodexHome, *words: str) -> Run:
    """Run `codex exec` to its end."""
    arguments = ("exec", "--skip-git-repo-check", *words)
    asked = replace(wanted(home), mode=Mode.PASSTHROUGH, arguments=arguments)
    with launch(asked, host) as run:
        ended = run.wait(SECONDS)
        assert ended is not None
        assert ended.code == 0
    return run


def test_a_session_of_codex_exec_is_proved_by_its_rollout_and_can_be_resumed(
    host: Host, tmp_path: Path, version: str
) -> None:
    with prepared(tmp_path, version) as (home, model):
        with open_codex(home, None) as codex:
            codex.turn("native")
        for words in (("first",), ("second", "--json")):
            run = executed(host, home, *words)
            assert run.report.native_id is None
            record = SessionStore(host.home).load(run.report.session)
            assert record.native_id in home.modes()
            assert record.conversations == (record.native_id,)
            found = {name: one.observed for name, one in seen(host, run).items()}
            assert found == {"native memory": "absent", "protocol": "once"}
        with launch(wanted(home, session=run.report.session), host) as again:
            turn(again, "more")
        (last,) = [one for one in model.turns if one.user[-1:] == ("more",)]
        assert "second" in last.user
        assert "first" not in last.user
        unstored = executed(host, home, "third", "--ephemeral")
        assert SessionStore(host.home).load(unstored.report.session).native_id == ""
