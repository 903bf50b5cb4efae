"""The demo's steps and their failures, on the real agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from amux.hub.values import ABSENT, GetRequest, UpsertRequest
from amux.launcher.demo.scene import STEPS, DemoFailed, run_demo
from amux.launcher.demo.scripted_models import REMEMBERED, TOPIC, Rememberer
from amux.launcher.demo.table import table
from amux.launcher.errors import AgentNotFound
from amux.launcher.launch import launch
from amux.launcher.probe.model import Call, Say, ScriptedModel
from amux.launcher.probe.stage import stage_codex
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from fixtures.hosts import make_host, user_client
from fixtures.pinned import AGENTS, pinned

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn

pytestmark = pytest.mark.agents


def codex_request(folder: Path, url: str, **changes: object) -> LaunchRequest:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    request = LaunchRequest(
        provider="codex",
        cwd=workspace,
        environment=stage_codex(folder / "agent-home", url),
        executable=pinned("codex", "0.153.4").executable,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def test_what_codex_saved_is_recalled_by_claude_corrected_by_pi_and_seen_by_a_new_codex() -> None:
    said: list[str] = []
    rows = run_demo(AGENTS, said.append)
    assert [row.report.provider for row in rows] == ["codex", "claude", "pi", "codex"]
    assert {row.report.binding for row in rows} == {"global"}
    assert [row.before == ABSENT for row in rows] == [True, False, False, False]
    assert rows[0].after == rows[1].before == rows[1].after == rows[2].before
    assert rows[2].before != rows[2].after == rows[3].before == rows[3].after
    assert "British" in rows[1].answer
    assert "Canadian" in rows[3].answer
    shown = table(rows)
    assert "memories.use_memories = false" in shown
    assert "auto memory" in shown
    assert len(said) == 2 * len(rows)


@dataclass(frozen=True, slots=True)
class Idler:
    """A model that uses no tool and claims to have saved."""

    def __call__(self, turn: Turn) -> Answer:
        del turn
        return Say("Saved, I think.")


def test_a_model_that_only_claims_to_have_saved_fails_the_demo() -> None:
    step = replace(STEPS[0], mind=Idler())
    with pytest.raises(DemoFailed, match="the document does not hold 'British'"):
        run_demo(AGENTS, lambda _: None, (step,))


def test_with_memory_switched_off_codex_starts_unbound_without_protocol_or_tools(
    tmp_path: Path,
) -> None:
    host = make_host(tmp_path, memory=False)
    with ScriptedModel(Rememberer()) as model:
        with launch(codex_request(tmp_path, model.url), host) as run:
            answer = take_turn("codex", run.channel, "hi", native_id=run.report.native_id)
        turn = model.turns[-1]
    assert run.report.binding is None
    assert run.report.unbound is not None
    assert "switched off" in run.report.unbound
    assert run.report.warnings == ()
    assert "no memory protocol" in answer
    assert turn.tool("memory_get") is None
    assert not (host.home / "hub.sock").exists()


def test_with_the_hub_down_codex_starts_with_a_warning_and_without_memory(
    quiet_host: Host, tmp_path: Path
) -> None:
    with ScriptedModel(Rememberer()) as model:
        request = codex_request(tmp_path, model.url, start_hub=False)
        with launch(request, quiet_host) as run:
            answer = take_turn("codex", run.channel, "hi", native_id=run.report.native_id)
    assert run.report.binding is None
    assert any("could not be bound" in text for text in run.report.warnings)
    assert "no memory protocol" in answer
    record = SessionStore(quiet_host.home).load(run.report.session)
    assert record.binding == ""


@dataclass(frozen=True, slots=True)
class StaleWriter:
    """Reads the document's revision, then writes with another one."""

    def __call__(self, turn: Turn) -> Answer:
        upsert = turn.tool("memory_upsert")
        if upsert is None:
            return Say("no tool")
        if not turn.results:
            stale = "0" * 64
            return Call(upsert, {"path": TOPIC, "content": "# Other\n", "expected_revision": stale})
        return Say(turn.results[-1].text)


def test_a_stale_revision_is_refused_with_the_observed_one_and_changes_nothing(
    host: Host, tmp_path: Path
) -> None:
    with user_client(host) as hub:
        written = hub.upsert(
            UpsertRequest(path=TOPIC, content=REMEMBERED, expected_revision=ABSENT)
        )
    with (
        ScriptedModel(StaleWriter()) as model,
        launch(codex_request(tmp_path, model.url), host) as run,
    ):
        answer = take_turn("codex", run.channel, "hi", native_id=run.report.native_id)
    assert "conflict" in answer
    assert written.revision in answer
    with user_client(host) as hub:
        assert hub.get(GetRequest(path=TOPIC)).text == REMEMBERED


def test_an_agent_that_is_not_installed_is_named_with_where_it_was_looked_for(
    host: Host, tmp_path: Path
) -> None:
    request = codex_request(tmp_path, "http://127.0.0.1:9", executable=None)
    empty = {**request.environment, "PATH": str(tmp_path)}
    with pytest.raises(AgentNotFound, match=f"no `codex` on PATH .{tmp_path}.; install"):
        launch(replace(request, environment=empty), host)
    assert SessionStore(host.home).list().records == ()
