"""One launch from request to record, with a scripted agent and a real Hub."""

from __future__ import annotations

import json
import re
import signal
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from click.testing import CliRunner

from amux.hub.client import HubClient
from amux.hub.config import set_setting
from amux.hub.errors import Unauthenticated
from amux.hub.local import ensure_running, stop_hub
from amux.hub.values import GetRequest
from amux.launcher import launch as launching
from amux.launcher.cli import launch as launch_command
from amux.launcher.errors import (
    AgentFailed,
    AgentNotFound,
    BadRequest,
    IsolationRefused,
    MemoryNotIsolated,
    MemoryRequired,
    SessionRunning,
)
from amux.launcher.launch import launch
from amux.launcher.memory.protocol import render
from amux.launcher.session.store import SessionStore, State
from amux.launcher.steps.record import write_seen
from amux.providers.base import Mode
from fixtures.scripted_provider import (
    OWN_TEXT,
    ScriptedProvider,
    scripted_registry,
)
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.run import Run
    from amux.launcher.steps.attempt import Attempt

SCHEMA = Path(__file__).parents[2] / "docs" / "launch-report.schema.json"
HUB_PAGE = Path(__file__).parents[2] / "docs" / "hub.md"


def instructions(run: Run) -> str | None:
    """Return the text that the agent itself has in its environment."""
    environ = Path(f"/proc/{run.process.pid}/environ").read_bytes().split(b"\0")
    values = dict(entry.decode().partition("=")[::2] for entry in environ if entry)
    return values.get("SCRIPTED_INSTRUCTIONS")


def test_a_fresh_launch_reports_binding_evidence_and_digests_and_says_no_secret(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as run:
        connection = json.loads(
            next(scripted.runs.glob("*/agent-config/memory/connection.json")).read_text()
        )
        text = instructions(run)
    report = run.report.as_json()
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["binding"] == "global"
    assert report["controls"] == [
        {"control": "memory", "observed": "off", "source": "echo", "asked": ""}
    ]
    assert report["seen"] == []
    assert text == OWN_TEXT + render("cli").text
    assert report["protocol_digest"] == render("cli").digest
    assert connection["token"] not in json.dumps(report)
    assert connection["token"] not in run.report.as_text()


def test_when_a_run_ends_its_credential_folder_and_record_are_settled(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as run:
        file = next(scripted.runs.glob("*/agent-config/memory/connection.json"))
        file.parent.joinpath("copy.json").write_bytes(file.read_bytes())
        saved = scripted.home / "copy.json"
        saved.write_bytes(file.read_bytes())
        saved.chmod(0o600)
        with HubClient.from_file(saved, binding="global") as hub:
            hub.get(GetRequest(path="MEMORY.md"))
        run.channel.send({"exit": 7})
        status = run.wait(SECONDS)
    assert status is not None
    assert status.code == 7
    assert list(scripted.runs.iterdir()) == []
    record = SessionStore(scripted.home).load(run.report.session)
    assert (record.state, record.exit_code) == (State.ENDED, 7)
    with (
        HubClient.from_file(saved, binding="global") as hub,
        pytest.raises(Unauthenticated),
    ):
        hub.get(GetRequest(path="MEMORY.md"))


def test_a_folder_that_the_agent_could_not_start_in_is_refused_by_its_name(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, wrong in (
        (tmp_path / "nowhere", "is not there"),
        (file, "is no folder"),
        (Path("here"), "is not an absolute path"),
    ):
        with pytest.raises(BadRequest, match=f"the folder {folder} {wrong}"):
            launch(ask(cwd=folder), scripted)
    assert SessionStore(scripted.home).list().records == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arguments": "cat"}, "LaunchRequest.arguments must be a tuple"),
        ({"arguments": (1,)}, "arguments must hold str only, and holds int"),
        ({"pass_names": "TOKEN"}, "LaunchRequest.pass_names must be a tuple"),
        ({"mode": "stream"}, "must be of type Mode, such as Mode.STREAM, not str"),
        ({"executable": "/bin/cat"}, "executable must be of type Path or None, such as Path"),
        ({"provide": ("a:b",)}, "provide must hold ProvidedFile only, and holds str"),
        ({"environment": None}, "environment must be of type Mapping, not NoneType"),
        ({"user": 0}, "user must be of type str or None"),
        ({"user": ""}, "user is empty; leave it out, or say which"),
        ({"principal": ""}, "principal is empty"),
        ({"session": ""}, "session is empty"),
        ({"cwd": Path()}, "cwd is empty"),
        ({"executable": Path()}, "executable is empty"),
        ({"private_home": Path()}, "private_home is empty"),
        ({"private_home": Path("home")}, "private_home home is not an absolute path"),
        ({"pass_names": ("TOKEN", "")}, "a name in pass_names .* is empty"),
        ({"environment": {}}, r"LaunchRequest.environment has no HOME; pass dict\(os.environ\)"),
    ],
)
def test_a_request_of_the_wrong_kinds_is_refused_by_the_fields_name(
    scripted: Host, ask: Callable[..., LaunchRequest], changes: dict[str, object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        launch(ask(**changes), scripted)


def test_an_agent_that_does_not_say_off_is_stopped_and_its_answer_is_in_the_error(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with pytest.raises(MemoryNotIsolated, match="the agent answered: on"):
        launch(ask(options={"answer": "on"}), scripted)
    (record,) = SessionStore(scripted.home).list().records
    assert record.state is State.FAILED
    assert "the agent answered: on" in record.failure
    assert list(scripted.runs.iterdir()) == []


def test_a_launch_that_fails_keeps_the_warnings_that_came_while_it_was_made(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SessionStore(scripted.home)

    def fail(attempt: Attempt, *_: object) -> None:
        write_seen(store, attempt.record.id, (), ("something was left",))
        raise BadRequest("no plan")

    monkeypatch.setattr(launching, "plan_launch", fail)
    with pytest.raises(BadRequest, match="no plan"):
        launch(ask(), scripted)
    (record,) = store.list().records
    assert (record.state, record.failure) == (State.FAILED, "no plan")
    assert record.warnings == ("something was left",)


def test_a_resume_uses_the_frozen_bytes_after_the_template_changed(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    with launch(ask(), scripted) as first:
        before = instructions(first)
    changed = replace(render("cli"), text="Something else entirely.\n", digest="0" * 64)
    monkeypatch.setattr("amux.launcher.memory.grant.load", lambda _: changed)
    with launch(ask(session=first.report.session), scripted) as again:
        after = instructions(again)
    assert after == before
    assert again.report.protocol_digest == first.report.protocol_digest
    assert again.report.instructions_digest == first.report.instructions_digest
    assert again.report.native_id == first.report.native_id
    assert again.report.resumed
    assert SessionStore(scripted.home).load(first.report.session).tool_list == "1"


def test_a_resume_while_memory_is_off_keeps_text_and_binding(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as first:
        before = instructions(first)
    stop_hub(scripted.home)
    set_setting(scripted.home, "memory.enabled", "false")
    ensure_running(scripted.home, scripted.environ)
    with launch(ask(session=first.report.session), scripted) as again:
        assert instructions(again) == before
    assert again.report.binding == "global"
    with launch(ask(), scripted) as fresh:
        assert instructions(fresh) is None
    assert fresh.report.binding is None


def test_a_resume_while_the_hub_is_down_keeps_the_text_without_a_credential_and_warns(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as first:
        before = instructions(first)
    stop_hub(scripted.home)
    with launch(ask(session=first.report.session, start_hub=False), scripted) as again:
        assert instructions(again) == before
        file = next(scripted.runs.glob("*/agent-config/memory/connection.json"))
        assert json.loads(file.read_text())["token"] == ""
    assert again.report.binding == "global"
    assert any("resumed again" in text for text in again.report.warnings)


def test_an_unbound_session_stays_unbound_when_memory_comes_on(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    stop_hub(scripted.home)
    with launch(ask(start_hub=False), scripted) as first:
        pass
    assert first.report.binding is None
    ensure_running(scripted.home, scripted.environ)
    with launch(ask(session=first.report.session), scripted) as again:
        assert instructions(again) is None
    assert again.report.binding is None
    assert again.report.unbound is not None
    assert "stays so" in again.report.unbound


def test_a_native_conversation_without_a_record_is_resumed_unbound_and_named(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(arguments=("--continue=foreign-1",)), scripted) as run:
        assert instructions(run) is None
    assert run.report.binding is None
    assert any("foreign-1 has no record" in text for text in run.report.warnings)


def test_a_native_id_among_the_agents_own_arguments_finds_its_session(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as first:
        before = instructions(first)
    arguments = (f"--continue={first.report.native_id}",)
    with launch(ask(arguments=arguments), scripted) as again:
        assert instructions(again) == before
    assert again.report.session == first.report.session


def test_two_live_runs_of_one_session_are_refused(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with (
        launch(ask(), scripted) as first,
        pytest.raises(SessionRunning, match=first.report.session),
    ):
        launch(ask(session=first.report.session), scripted)


def test_a_fork_is_a_new_session_with_the_same_text_and_leaves_the_first_alone(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as first:
        before = instructions(first)
    with launch(ask(session=first.report.session, fork=True), scripted) as fork:
        assert instructions(fork) == before
    assert fork.report.session != first.report.session
    record = SessionStore(scripted.home).load(fork.report.session)
    assert record.parent == first.report.session


def test_a_generic_command_launches_and_the_report_names_what_is_missing(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    request = ask(
        provider="generic", executable=None, arguments=("/bin/cat",), mode=Mode.PASSTHROUGH
    )
    with launch(request, scripted) as run:
        pass
    assert run.report.binding is None
    assert run.report.missing


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"options": {"speed": "9"}}, "has no option 'speed'; it has: answer"),
        ({"user": "nobody", "private_home": Path("/x")}, "exclude each other"),
        ({"cwd": Path("somewhere")}, "not an absolute path"),
        ({"environment": {"PATH": "/usr/bin"}}, "has no HOME"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anything_is_made(
    scripted: Host,
    ask: Callable[..., LaunchRequest],
    changes: dict[str, object],
    sentence: str,
) -> None:
    with pytest.raises(BadRequest, match=sentence):
        launch(ask(**changes), scripted)
    assert SessionStore(scripted.home).list().records == ()


def test_a_missing_agent_is_refused_with_the_place_where_it_was_looked_for(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with pytest.raises(AgentNotFound, match="no `scripted-agent` on PATH"):
        launch(ask(executable=None), scripted)


def test_under_policy_principal_another_principal_needs_an_account_or_a_private_home(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    from amux.hub.identity import PrincipalFile  # noqa: PLC0415  # the operator's side of the Hub

    stop_hub(scripted.home)
    set_setting(scripted.home, "memory.isolation", "principal")
    PrincipalFile(scripted.home / "identity").add("alice")
    ensure_running(scripted.home, scripted.environ)
    with pytest.raises(IsolationRefused, match="accept weak isolation with --private-home"):
        launch(ask(principal="alice"), scripted)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    with launch(ask(principal="alice", private_home=private), scripted) as run:
        pass
    assert run.report.binding == "principal:alice"
    assert run.report.isolation == "private-home (weak)"
    with launch(ask(), scripted) as own:
        pass
    assert own.report.binding is not None
    assert own.report.binding.startswith("principal:")


def test_an_agent_killed_by_a_signal_is_recorded_with_that_signal(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as run:
        run.process.signal(signal.SIGKILL)
        status = run.wait(SECONDS)
    assert status is not None
    assert status.signal == signal.SIGKILL
    assert SessionStore(scripted.home).load(run.report.session).exit_signal == signal.SIGKILL


def test_a_step_that_fails_leaves_no_run_folder_and_no_lease(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BadRequest("a step failed")

    monkeypatch.setattr(launching, "_spawn_request", refuse)
    with pytest.raises(BadRequest, match="a step failed"):
        launch(ask(), scripted)
    assert list(scripted.runs.iterdir()) == []
    assert list((scripted.home / "identity" / "launches").glob("*.json")) == []


def test_a_named_principal_that_the_hub_does_not_know_is_refused_before_anything_is_started(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with pytest.raises(BadRequest, match="no launch for Principal 'nobdy'"):
        launch(ask(principal="nobdy"), scripted)
    (record,) = SessionStore(scripted.home).list().records
    assert record.state is State.FAILED
    assert record.processes == ()


def test_a_named_principal_while_memory_is_off_is_a_warning(
    quiet_host: Host, ask: Callable[..., LaunchRequest]
) -> None:
    set_setting(quiet_host.home, "memory.enabled", "false")
    host = replace(quiet_host, providers=scripted_registry())
    with launch(ask(principal="alice"), host) as run:
        pass
    assert any("memory is switched off" in text for text in run.report.warnings)


def test_a_launch_that_requires_memory_is_refused_where_it_would_be_without(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(require_memory=True), scripted) as first:
        assert first.report.binding == "global"
    stop_hub(scripted.home)
    with pytest.raises(MemoryRequired, match="the agent was not started"):
        launch(ask(require_memory=True, start_hub=False), scripted)
    again = ask(session=first.report.session, require_memory=True, start_hub=False)
    with pytest.raises(MemoryRequired, match="no credential for global"):
        launch(again, scripted)


def test_a_child_names_its_parent_and_gets_its_own_principal_not_the_parents(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    from amux.hub.identity import PrincipalFile  # noqa: PLC0415  # the operator's side of the Hub

    stop_hub(scripted.home)
    set_setting(scripted.home, "memory.isolation", "principal")
    PrincipalFile(scripted.home / "identity").add("alice")
    ensure_running(scripted.home, scripted.environ)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    with launch(ask(principal="alice", private_home=private), scripted) as parent:
        child = ask(kind="task", parent=parent.report.session)
        with launch(child, scripted) as run:
            pass
    assert parent.report.binding == "principal:alice"
    assert run.report.binding not in {None, "global", "principal:alice"}
    record = SessionStore(scripted.home).load(run.report.session)
    assert (record.kind, record.parent) == ("task", parent.report.session)


def test_a_process_that_has_no_home_itself_is_told_to_set_one(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    with pytest.raises(BadRequest, match="HOME is not set"):
        launch(ask(environment={}), scripted)


def test_a_resume_of_what_the_agent_does_not_have_says_to_launch_a_new_one(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedProvider, "unknown_conversation", ("the last words",))
    monkeypatch.setattr(launch_command, "this_host", lambda _: scripted)
    with launch(ask(), scripted) as first:
        session = first.report.session
    with pytest.raises(AgentFailed, match=f"no conversation of session {session}.*launch a new"):
        launch(ask(session=session, arguments=("--flood", "1", "--exit", "1")), scripted)
    told = CliRunner().invoke(
        launch_command.resume,
        [session, "--executable", str(ask().executable), "--", "--flood", "1", "--exit", "3"],
    )
    assert told.exit_code == 3
    assert f"session {session} never had a turn; launch a new one" in told.stderr


def test_a_session_whose_agent_gave_no_id_says_that_and_not_that_it_never_began(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    request = ask(provider="generic", executable=None, arguments=("/bin/true",))
    with launch(request, scripted) as run:
        run.wait(SECONDS)
    with pytest.raises(BadRequest, match="ran, but generic in stream mode gave amux no id"):
        launch(replace(request, provider="", session=run.report.session), scripted)


def test_every_file_of_a_home_is_one_that_the_page_on_the_hub_lists_with_its_mode(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    section = HUB_PAGE.read_text().partition("## Files")[2].partition("## Identity")[0]
    modes: dict[str, str] = {}
    for names, mode in re.findall(r"^\| (`[^|]+) \| (\S+) \|", section, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", names):
            folder = name.rpartition("/")[0] if "/" in name else folder
            modes[name if "/" in name or not folder else f"{folder}/{name}"] = mode
    with launch(ask(), scripted) as run:
        found = {path: path.lstat().st_mode for path in scripted.home.rglob("*")}
    assert scripted.home / "bin" / "amux" in found
    for path, mode in found.items():
        name = str(path.relative_to(scripted.home)).replace(run.report.session, "ID")
        if name.startswith(("runs/", "identity/launches/")):
            continue
        wanted = modes.get(f"{name}/", "0700") if stat.S_ISDIR(mode) else modes[name]
        shown = "link" if stat.S_ISLNK(mode) else f"{stat.S_IMODE(mode):04o}"
        assert (name, shown) == (name, wanted)
