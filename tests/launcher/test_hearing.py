"""Whether the agent asked for the memory tools: in the report, in the record, in the warnings."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import MemoryRequired
from amux.launcher.evidence import mcp_evidence as hearing
from amux.launcher.evidence.mcp_reports import NEVER_LISTED, NEVER_STARTED
from amux.launcher.launch import launch
from amux.launcher.session.store import SessionStore, State
from amux.providers.base import Mode
from fixtures.scripted_provider import INITIALIZE, LIST
from tests.launcher.agents_at_work import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.run import Run
    from amux.launcher.session.notice import Notice

LISTED = "5 listed to scripted 1.2.3"


def lists_now(run: Run, *requests: str) -> None:
    """Ask the run's own server, as its agent does."""
    environ = dict(
        entry.decode().partition("=")[::2]
        for entry in (line for line in _environ(run).split(b"\0") if line)
    )
    done = subprocess.run(
        (environ["AMUX_CLI"], "mcp"),
        input="".join(f"{one}\n" for one in requests),
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert done.stdout.count("\n") == len(requests)


def _environ(run: Run) -> bytes:
    with open(f"/proc/{run.process.pid}/environ", "rb") as file:  # noqa: PTH123
        return file.read()


def seen(host: Host, run: Run) -> dict[str, str]:
    record = SessionStore(host.home).load(run.report.session)
    return {one.control: one.observed for one in record.seen if one.control == "memory tools"}


def test_a_stream_waits_for_an_agent_that_asks_first_and_reports_what_it_was_offered(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    heard: list[Notice] = []
    with launch(ask("eager", options={"lists": ""}), scripted, heard=heard.append) as run:
        (told,) = run.report.seen
        assert (told.control, told.observed, told.turn) == ("memory tools", LISTED, 0)
        assert told.source == "tools/list of this run's MCP server"
        assert seen(scripted, run) == {"memory tools": LISTED}
    assert run.report.warnings == ()
    assert heard == []
    assert seen(scripted, run) == {"memory tools": LISTED}


def test_tools_that_an_agent_should_have_asked_for_and_did_not_are_warned_of_once(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "LIST_SECONDS", 0.0)
    heard: list[Notice] = []
    with launch(ask("eager"), scripted, heard=heard.append) as run:
        assert run.report.warnings == (NEVER_STARTED,)
        assert [one.observed for one in run.report.seen] == ["not asked for"]
    assert heard == []
    record = SessionStore(scripted.home).load(run.report.session)
    assert record.warnings == (NEVER_STARTED,)
    assert [one.contradicts for one in record.seen] == [NEVER_STARTED]


def test_a_launch_that_demands_memory_ends_where_its_agent_takes_no_tools(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "LIST_SECONDS", 0.0)
    with pytest.raises(MemoryRequired, match="it ended before its first turn"):
        launch(ask("eager", require_memory=True), scripted)
    (record,) = SessionStore(scripted.home).list().records
    assert record.state is State.FAILED
    assert NEVER_STARTED in record.failure
    assert list(scripted.runs.iterdir()) == []


def test_an_agent_that_asks_when_it_likes_is_not_waited_for_and_told_of_when_it_does(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    heard: list[Notice] = []
    with launch(ask("listing"), scripted, heard=heard.append) as run:
        assert (run.report.seen, run.report.warnings) == ((), ())
        lists_now(run, INITIALIZE, LIST)
        assert eventually(lambda: seen(scripted, run) == {"memory tools": LISTED})
        assert eventually(lambda: len(heard) == 1)
    assert len(heard) == 1
    assert heard[0].warnings == ()


@pytest.mark.parametrize(
    ("requests", "observed", "wrong"),
    [((), "not asked for", NEVER_STARTED), ((INITIALIZE,), "not listed", NEVER_LISTED)],
)
def test_the_record_of_a_run_that_ended_without_the_tools_says_so_and_warns(
    scripted: Host,
    ask: Callable[..., LaunchRequest],
    requests: tuple[str, ...],
    observed: str,
    wrong: str,
) -> None:
    heard: list[Notice] = []
    with launch(ask("listing"), scripted, heard=heard.append) as run:
        if requests:
            lists_now(run, *requests)
        assert seen(scripted, run) == {}
    assert seen(scripted, run) == {"memory tools": observed}
    assert SessionStore(scripted.home).load(run.report.session).warnings == (wrong,)
    assert [one.warnings for one in heard] == [(wrong,)]


def test_after_the_first_turn_it_is_said_and_a_later_list_corrects_the_record(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    with launch(ask("listing"), scripted) as run:
        kept = tmp_path / "kept" / "today" / f"{run.report.native_id}.txt"
        kept.parent.mkdir(parents=True)
        kept.write_text("protocol\nturn\n")
        assert eventually(lambda: seen(scripted, run) == {"memory tools": "not asked for"})
        lists_now(run, INITIALIZE, LIST)
        assert eventually(lambda: seen(scripted, run) == {"memory tools": LISTED})
    assert seen(scripted, run) == {"memory tools": LISTED}
    record = SessionStore(scripted.home).load(run.report.session)
    assert [one.turn for one in record.seen if one.control == "memory tools"] == [1]


def test_a_pass_through_that_ends_at_once_has_its_list_in_the_record(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    request = ask("listing", options={"lists": ""}, mode=Mode.PASSTHROUGH, arguments=("--exit=0",))
    with launch(request, scripted) as run:
        assert run.wait(DEADLINE) is not None
    assert seen(scripted, run) == {"memory tools": LISTED}
    assert SessionStore(scripted.home).load(run.report.session).warnings == ()


def test_an_agent_that_only_prints_its_version_lacks_no_tools(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    request = ask("listing", mode=Mode.PASSTHROUGH, arguments=("--version",))
    with launch(request, scripted) as run:
        assert run.wait(DEADLINE) is not None
    assert seen(scripted, run) == {}
    assert SessionStore(scripted.home).load(run.report.session).warnings == ()


def test_where_a_run_can_hold_no_socket_nothing_is_said_of_its_tools(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file system without sockets, which a test cannot mount everywhere.
    monkeypatch.setattr(hearing, "open_witness", lambda *_: None)
    with launch(ask("eager", require_memory=True), scripted) as run:
        assert (run.report.seen, run.report.warnings) == ((), ())
    assert seen(scripted, run) == {}
