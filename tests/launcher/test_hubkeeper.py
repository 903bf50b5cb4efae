"""A Hub that ends under living runs is started again, unless it was stopped on purpose."""

from __future__ import annotations

import itertools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.client import HubClient
from amux.hub.config import set_setting
from amux.hub.connection import Connection
from amux.hub.errors import NotStarted
from amux.hub.holder import read_holder
from amux.hub.local import answers, ensure_running, stop_hub
from amux.hub.placement import Placed
from amux.hub.stopmark import is_marked, set_mark
from amux.hub.values import UpsertRequest
from amux.launcher.host import Host, this_host
from amux.launcher.launch import launch
from amux.launcher.memory import hub_keeper
from amux.launcher.memory.hub import ENDS_WITH_US
from amux.launcher.memory.hub_keeper import HubKeeper
from amux.launcher.session.store import SessionStore
from fixtures.hubs import SERVER, HubHome, new_home
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amux.hub.holder import Holder
    from amux.launcher.request import LaunchRequest

LOOKS: Final = 5
SUPERVISORS: Final = 6
SUPERVISOR: Final = """
import os, sys
from amux.launcher.host import this_host
from amux.launcher.memory.hub_keeper import HubKeeper
keeper = HubKeeper(pace=0.05)
keeper.keep("a run", this_host(os.environ))
print("keeps", flush=True)
sys.stdin.read()
"""


class Starts:
    """Starts the Hub as a keeper does, and tells it."""

    def __init__(self, fail: str = "") -> None:
        self.made: queue.Queue[int] = queue.Queue()
        self._fail = fail
        self._count = itertools.count(1)

    def __call__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.made.put(next(self._count))
        if self._fail:
            raise NotStarted(self._fail)
        hub_keeper.start_again(home, environ)


def keeping() -> set[threading.Thread]:
    """Return the threads of keepers; one of an earlier test may be about to end."""
    return {one for one in threading.enumerate() if one.name == "amux-hub"}


def test_a_killed_hub_comes_back_and_the_living_sessions_memory_with_it(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as run:
        record = SessionStore(scripted.home).load(run.report.session)
        [file] = Path(record.run).rglob("connection.json")
        fields = json.loads(file.read_bytes())
        connection = Connection(url=fields["url"], token=fields["token"])
        with HubClient(connection, binding=record.binding) as agent:
            agent.upsert(
                UpsertRequest(path="kept.md", content="kept\n", expected_revision="absent")
            )
        killed = kill(scripted)
        assert came_back(scripted, killed).pid != killed.pid
        shown = subprocess.run(
            [sys.executable, "-P", "-m", "amux.launcher.command", "memory", "show", "kept.md"],
            env={
                "AMUX_RUN": record.marker,
                "AMUX_CONNECTION": str(file),
                "AMUX_MEMORY_BINDING": record.binding,
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (shown.returncode, shown.stderr) == (0, "")
        assert json.loads(shown.stdout)["text"] == "kept\n"
        assert SessionStore(scripted.home).load(run.report.session).warnings == ()


def test_the_launch_whose_end_would_end_the_hub_says_so_and_no_other(
    scripted: Host, ask: Callable[..., LaunchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_hub(scripted.home)
    # A Hub that could not leave, on a system where it could.
    monkeypatch.setattr("amux.hub.local.find_manager", lambda _: None)
    monkeypatch.setattr("amux.hub.local.LEAVE", Placed.SHARED)
    with launch(ask(), scripted) as first, launch(ask(), scripted) as second:
        assert first.report.warnings == (ENDS_WITH_US,)
        assert second.report.warnings == ()


def test_a_hub_that_was_stopped_stays_so_until_somebody_starts_it(
    host: Host, looks: queue.Queue[bool]
) -> None:
    starts = Starts()
    keeper = HubKeeper(start=starts, pace=0.01)
    keeper.keep("a run", host)
    assert stop_hub(host.home) is True
    for _ in range(LOOKS):
        assert looks.get(timeout=SECONDS) is True
    assert starts.made.empty()
    assert not answers(host.home)
    ensure_running(host.home, host.environ)
    assert not is_marked(host.home)
    came_back(host, kill(host))
    keeper.let_go("a run")


def test_a_hub_that_a_unit_ends_with_its_group_is_started_again(host: Host) -> None:
    keeper = HubKeeper(pace=0.01)
    keeper.keep("a run", host)
    ended = read_holder(host.home)
    assert ended is not None
    os.kill(ended.pid, signal.SIGTERM)
    came_back(host, ended)
    keeper.let_go("a run")


def test_a_hub_that_a_person_serves_and_ends_is_left_ended(
    by_hand: HubHome, looks: queue.Queue[bool]
) -> None:
    starts = Starts()
    keeper = HubKeeper(start=starts, first=0.01, pace=0.01)
    keeper.keep("a run", this_host(by_hand.environ))
    assert by_hand.stop() == 0
    for _ in range(LOOKS):
        assert looks.get(timeout=SECONDS) is False
    assert starts.made.empty()
    by_hand.start()
    by_hand.kill()
    assert came_back(this_host(by_hand.environ), None).on_demand
    keeper.let_go("a run")


def test_a_killed_hub_that_nobody_reaps_is_known_as_ended(by_hand: HubHome) -> None:
    starts = Starts()
    keeper = HubKeeper(start=starts, first=0.01)
    keeper.keep("a run", this_host(by_hand.environ))
    assert by_hand.process is not None
    by_hand.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, by_hand.process.pid, os.WEXITED | os.WNOWAIT)
    assert starts.made.get(timeout=SECONDS) == 1
    assert came_back(this_host(by_hand.environ), None).pid != by_hand.process.pid
    keeper.let_go("a run")


def test_of_many_supervisors_one_starts_the_hub_again(host: Host) -> None:
    supervisors = [
        subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR],
            env=dict(host.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(SUPERVISORS)
    ]
    for one in supervisors:
        assert one.stdout is not None
        assert one.stdout.readline() == b"keeps\n"
    holder = came_back(host, kill(host))
    for one in supervisors:
        one.communicate(timeout=SECONDS)
    assert read_holder(host.home) == holder
    log = (host.home / "logs" / "hub.log").read_text(encoding="utf-8")
    begun = [line for line in map(json.loads, log.splitlines()) if line["event"] == "start"]
    assert [(line["unasked"], line["pid"] == holder.pid) for line in begun] == [
        (False, False),
        (True, True),
    ]


def test_a_start_that_fails_is_told_once_and_tried_again_ever_more_seldom(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: queue.Queue[float] = queue.Queue()
    wait = hub_keeper._Home.wait  # noqa: SLF001  # what it waits is what is looked at

    def tell_and_wait(kept: hub_keeper._Home, seconds: float) -> bool:
        if seconds:
            waited.put(seconds)
        return wait(kept, seconds)

    monkeypatch.setattr(hub_keeper._Home, "wait", tell_and_wait)  # noqa: SLF001  # as above
    told: queue.Queue[str] = queue.Queue()
    keeper = HubKeeper(start=Starts("the disk is full"), first=0.01, last=0.04)
    keeper.keep("a run", host, told.put)
    kill(host)
    assert [waited.get(timeout=SECONDS) for _ in range(4)] == [0.01, 0.02, 0.04, 0.04]
    keeper.let_go("a run")
    assert "starting it again failed: the disk is full" in told.get(timeout=SECONDS)
    assert told.empty()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_counts_on_a_keeper_that_a_mistake_has_ended(host: Host) -> None:
    started: queue.Queue[Path] = queue.Queue()
    mistakes = iter([RuntimeError("a mistake")])

    def start(home: Path, environ: Mapping[str, str]) -> None:
        for mistake in mistakes:
            raise mistake
        started.put(home)
        hub_keeper.start_again(home, environ)

    before = keeping()
    keeper = HubKeeper(start=start)
    keeper.keep("a run", host)
    [thread] = keeping() - before
    kill(host)
    thread.join(SECONDS)
    assert not thread.is_alive()
    keeper.let_go("a run")
    keeper.keep("another", host)
    assert started.get(timeout=SECONDS) == host.home
    [thread] = keeping() - before
    keeper.let_go("another")
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_hub_is_kept_alive_by_nobody_once_the_last_run_is_over(host: Host) -> None:
    starts = Starts()
    before = keeping()
    keeper = HubKeeper(start=starts)
    for name in ("first", "second"):
        keeper.keep(name, host)
    [thread] = keeping() - before
    keeper.let_go("first")
    assert thread.is_alive()
    keeper.let_go("second")
    thread.join(SECONDS)
    assert not thread.is_alive()
    kill(host)
    assert starts.made.empty()


def test_nothing_is_started_inside_a_run_or_with_memory_off_or_in_another_folder(
    host: Host, looks: queue.Queue[bool]
) -> None:
    before = keeping()
    keeper = HubKeeper(pace=0.01)
    keeper.keep("inside", replace(host, environ={**host.environ, "AMUX_RUN": "x"}))
    assert keeping() <= before
    set_setting(host.home, "memory.enabled", "false")
    kill(host)
    hub_keeper.start_again(host.home, host.environ)
    assert not answers(host.home)
    set_setting(host.home, "memory.enabled", "true")
    ensure_running(host.home, host.environ)
    keeper.keep("moved", host)
    moved = host.home.with_name("moved")
    host.home.rename(moved)
    host.home.mkdir(mode=0o700)
    kill(replace(host, home=moved))
    for _ in range(LOOKS):
        looks.get(timeout=SECONDS)
    assert list(host.home.iterdir()) == []
    keeper.let_go("moved")


def test_a_hub_that_starts_unasked_gives_way_to_a_stop(hub_home: HubHome) -> None:
    set_mark(hub_home.home)
    with pytest.raises(NotStarted, match="stopped on purpose"):
        ensure_running(hub_home.home, hub_home.environ, unasked=True)
    server = [*SERVER, "--unasked"]
    refused = subprocess.run(
        server, env=hub_home.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert refused.returncode == 78
    assert "stopped on purpose" in refused.stderr
    assert is_marked(hub_home.home)
    hub_home.start()
    assert not is_marked(hub_home.home)


@pytest.fixture
def hub_home(tmp_path: Path) -> Iterator[HubHome]:
    made = new_home(tmp_path / "h")
    made.set("memory.enabled", "true")
    yield made
    made.kill()
    stop_hub(made.home)


@pytest.fixture
def by_hand(hub_home: HubHome) -> HubHome:
    hub_home.start()
    return hub_home


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[bool]:
    """Tell each look of a keeper at a home without a Hub: whether it was stopped on purpose."""
    told: queue.Queue[bool] = queue.Queue()
    lacks = hub_keeper._Home.lacks  # noqa: SLF001  # only here it shows that nothing was done

    def tell_and_look(kept: hub_keeper._Home, last: Holder | None) -> bool:
        found = lacks(kept, last)
        told.put(is_marked(kept.path))
        return found

    monkeypatch.setattr(hub_keeper._Home, "lacks", tell_and_look)  # noqa: SLF001  # as above
    return told


def kill(host: Host) -> Holder:
    """Kill the Hub, and return which one it was once it is gone."""
    holder = read_holder(host.home)
    assert holder is not None
    process = os.pidfd_open(holder.pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert select.select([process], [], [], SECONDS)[0]
    finally:
        os.close(process)
    return holder


def came_back(host: Host, ended: Holder | None) -> Holder:
    """Return the Hub that answers in place of the one that ended."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        holder = read_holder(host.home)
        if holder is not None and holder != ended and answers(host.home):
            return holder
    raise AssertionError("no Hub came back")
