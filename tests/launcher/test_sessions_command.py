"""`amux sessions`: list, show, stop, prune."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from amux.launcher.cli.sessions import command
from amux.launcher.process.run_processes import ProcessKey, alive, start_time
from amux.launcher.process.spawn import ExitStatus
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import (
    RecordedEvidence,
    RunProcess,
    SessionRecord,
    SessionStore,
    State,
    timestamp,
)
from amux.launcher.supervisor import Supervisor
from amux.providers.base import Sighting
from tests.launcher.agents_at_work import COMMAND, DEADLINE, written_pid

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "amux"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("AMUX_HOME", str(folder))
    monkeypatch.setenv("AMUX_RUNS", str(tmp_path / "runs"))
    return folder


@pytest.fixture
def store(home: Path) -> SessionStore:
    return SessionStore(home)


def amux(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def as_json(*arguments: str) -> Any:  # noqa: ANN401  # what JSON holds
    result = amux(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def record(store: SessionStore, **fields: Any) -> SessionRecord:  # noqa: ANN401  # any field
    ended = SessionRecord(
        id=store.new_id(), provider="codex", state=State.ENDED, exit_code=3, cwd="/work"
    )
    return store.create(replace(ended, **fields))


def test_a_home_without_sessions_lists_none(home: Path) -> None:
    assert home.exists()
    assert amux("list").output == ""
    assert as_json("list") == {"sessions": [], "damaged": []}


def test_the_list_says_how_each_ended_and_names_the_damaged(store: SessionStore) -> None:
    one = record(store, binding="global")
    two = record(store, exit_code=None, exit_signal=9)
    (store.folder / "abcd.json").write_text("damaged", encoding="utf-8")
    result = amux("list")
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "exit 3" in lines[one.id]
    assert "global" in lines[one.id]
    assert "signal 9" in lines[two.id]
    assert "no memory" in lines[two.id]
    assert "abcd.json cannot be read" in result.stderr
    listed = as_json("list")
    assert {one["id"] for one in listed["sessions"]} == {one.id, two.id}
    assert [one["id"] for one in listed["damaged"]] == ["abcd"]


def test_a_record_is_shown_in_lines_and_as_json(store: SessionStore) -> None:
    asked = RecordedEvidence(control="memory", observed="off", source="asked", asked="2026-01-01")
    seen = Sighting(control="protocol", observed="once", source="transcript", turn=2)
    one = record(
        store,
        protocol="line one\nline two\n",
        arguments=("-p", "two words"),
        processes=(RunProcess(role="agent", pid=7, start=9),),
        evidence=(asked,),
        seen=(seen,),
        warnings=("look here",),
    )
    lines = amux("show", one.id).output.splitlines()
    assert f"{'arguments':<20} '-p' 'two words'" in lines
    assert f"{'processes':<20} role agent, pid 7, start 9" in lines
    assert lines[lines.index("protocol:") + 1 :][:2] == ["  line one", "  line two"]
    assert lines[-5:] == [
        "asked before the agent started:",
        "  memory = off (asked, asked 2026-01-01)",
        "seen in this conversation:",
        "  protocol = once (transcript, turn 2)",
        "warning: look here",
    ]
    assert as_json("show", one.id)["protocol"] == "line one\nline two\n"


def test_what_a_record_holds_cannot_write_on_the_terminal(store: SessionStore) -> None:
    hostile = "/srv/\x1b]0;x\x07\x1b[2J\nFAKE LINE"
    one = record(store, cwd=hostile, kind=hostile, warnings=(hostile,))
    for shown in (amux("list").output, amux("show", one.id).output):
        assert "\x1b" not in shown
        assert not any(line.startswith("FAKE") for line in shown.splitlines())


def test_a_session_is_found_by_its_first_characters_unless_two_begin_so(
    store: SessionStore,
) -> None:
    one = record(store, id="abcd1111")
    record(store, id="abcd2222")
    assert one.id in amux("show", "abcd1").output
    assert "session abcd1111 does not run" in amux("stop", "abcd1").output
    for verb in ("show", "stop"):
        refused = amux(verb, "abcd")
        assert refused.exit_code == 1
        assert "2 sessions begin with abcd: abcd1111, abcd2222" in refused.stderr


def test_the_listed_times_say_that_they_are_utc(store: SessionStore) -> None:
    one = record(store, created="2026-01-02T03:04:05.678Z")
    assert f"{one.id}  2026-01-02T03:04:05Z  codex" in amux("list").output


@pytest.mark.parametrize("verb", ["show", "stop"])
def test_a_session_that_is_not_there_is_refused_in_one_sentence(home: Path, verb: str) -> None:
    assert home.exists()
    result = amux(verb, "abcd")
    assert result.exit_code == 1
    assert "there is no session abcd" in result.stderr


def test_a_session_of_another_supervisor_is_stopped_with_all_that_it_started(
    home: Path, tmp_path: Path
) -> None:
    orphan_file = tmp_path / "orphan"
    with Supervisor(home) as supervisor:
        session = supervisor.launch(
            LaunchRequest(
                provider="generic",
                arguments=(*COMMAND, "--deaf", "--orphan", str(orphan_file)),
                environment=dict(os.environ),
            )
        )
        orphan = written_pid(orphan_file)
        agent = ProcessKey(pid=session.pid, start=orphan.start)
        assert as_json("list")["sessions"][0]["state"] == "running"
        result = amux("stop", session.id)
        assert result.exit_code == 0, result.output
        assert session.wait(DEADLINE) == ExitStatus(signal=signal.SIGTERM)
        assert not alive(orphan)
        assert not alive(agent)
        assert supervisor.record(session.id).exit_signal == signal.SIGTERM
        assert "does not run" in amux("stop", session.id).output


def test_pruning_forgets_old_sessions_that_ended_and_nothing_else(store: SessionStore) -> None:
    old = record(store)
    text = (store.folder / f"{old.id}.json").read_text(encoding="utf-8")
    changed = text.replace(old.updated, "2020-01-01T00:00:00.000Z")
    (store.folder / f"{old.id}.json").write_text(changed, encoding="utf-8")
    new = record(store)
    odd = record(store, id="0dd0")
    path = store.folder / "0dd0.json"
    path.write_text(path.read_text("utf-8").replace(odd.updated, "once upon a time"), "utf-8")
    (store.folder / "abcd.json").write_text("damaged", encoding="utf-8")
    running = record(store, state=State.RUNNING, updated=timestamp())
    lock = store.lock(running.id)
    assert amux("prune", "--dry-run").output == f"would forget {old.id}\n"
    assert amux("prune").output == f"forgot {old.id}\n"
    lock.release()
    kept = {path.stem for path in store.folder.glob("*.json")}
    assert kept == {new.id, "0dd0", "abcd", running.id}


def test_a_run_that_was_cut_off_is_settled_by_the_next_command(store: SessionStore) -> None:
    cut = record(store, state=State.RUNNING, marker="ab" * 16, exit_code=None)
    store.lock(cut.id).close()
    assert as_json("show", cut.id)["state"] == "ended"
    assert "killed" in as_json("show", cut.id)["failure"]


@pytest.mark.parametrize("verb", ["list", "stop", "prune"])
def test_a_run_whose_end_could_not_be_written_is_settled_whatever_is_asked(
    store: SessionStore, verb: str
) -> None:
    """Its lock is gone, so nothing but the record says that it runs."""
    lost = record(store, state=State.RUNNING, marker="cd" * 16, exit_code=None)
    amux(verb, *([lost.id] if verb == "stop" else []))
    settled = store.load(lost.id)
    assert settled.state is State.ENDED
    assert "the disk was full" in settled.failure


def test_a_copied_home_leaves_the_runs_of_the_original_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    with Supervisor(home) as supervisor:
        session = supervisor.launch(
            LaunchRequest(provider="generic", arguments=COMMAND, environment=dict(os.environ))
        )
        agent = ProcessKey(pid=session.pid, start=start_time(session.pid))
        shutil.copytree(home, copy, symlinks=True)
        monkeypatch.setenv("AMUX_HOME", str(copy))
        assert as_json("show", session.id)["state"] == "ended"
        assert "copy of another home" in as_json("show", session.id)["failure"]
        assert amux("stop", session.id).exit_code == 1
        assert amux("prune", "--older-than", "0").exit_code == 0
        assert alive(agent)
        assert supervisor.record(session.id).state is State.RUNNING
