"""Leases of live runs are renewed until they are let go."""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from amux.hub.client import HubClient
from amux.hub.connection import Connection, connection_path
from amux.hub.errors import HubError, Unauthenticated, Unavailable
from amux.hub.home import private_socket
from amux.hub.values import GetRequest
from amux.launcher.launch import launch
from amux.launcher.memory.binding import Lease
from amux.launcher.memory.renewal import LeaseKeeper
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from fixtures.hosts import user_client
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.session.notice import Notice


DAY: Final = 86_400.0


def _held(runtime: HubClient, launch: str) -> Lease:
    """Open a launch as a run has it."""
    grant = runtime.open_launch(launch)
    return Lease(
        launch=launch,
        binding=grant.binding,
        principal=grant.principal,
        token=grant.token,
        expires_at=grant.expires_at,
    )


def _runtime(host: Host) -> HubClient:
    return HubClient.from_file(connection_path(host.home, "runtime"))


def _reads(host: Host, lease: Lease) -> bool:
    """Say whether the run's credential opens its memory."""
    connection = Connection(url=f"unix:{private_socket(host.home)}", token=lease.token or "")
    try:
        with HubClient(connection, binding=lease.binding) as agent:
            agent.get(GetRequest(path="MEMORY.md"))
    except Unauthenticated:
        return False
    return True


class Watched:
    """Opens clients whose renewals are told."""

    def __init__(self, host: Host) -> None:
        self.renewals: queue.Queue[tuple[str, int]] = queue.Queue()
        self._host = host

    def __call__(self) -> HubClient:
        client = _runtime(self._host)
        renew = client.renew_launch

        def renew_and_tell(launch: str, **proof: Any) -> Any:  # noqa: ANN401  # the client's own
            lease = renew(launch, **proof)
            self.renewals.put((launch, lease.expires_at))
            return lease

        client.renew_launch = renew_and_tell  # type: ignore[method-assign]
        return client


def test_a_kept_lease_is_renewed_at_the_hub_and_a_let_go_one_is_not(host: Host) -> None:
    watched = Watched(host)
    keeper = LeaseKeeper(interval=0.01)
    with _runtime(host) as runtime:
        opened = {name: _held(runtime, name) for name in ("kept-1", "kept-2")}
    for lease in opened.values():
        keeper.keep(lease, watched)
    seen = {watched.renewals.get(timeout=SECONDS) for _ in range(20)}
    assert {name for name, _ in seen} == set(opened)
    assert all(expires >= (opened[name].expires_at or 0) for name, expires in seen)
    keeper.let_go("kept-1")
    while not watched.renewals.empty():
        watched.renewals.get_nowait()
    later = [watched.renewals.get(timeout=SECONDS)[0] for _ in range(20)]
    assert later.count("kept-1") <= 1, "one renewal may have been under way"
    keeper.let_go("kept-2")


def test_a_hub_that_is_away_is_asked_again() -> None:
    asked: queue.Queue[None] = queue.Queue()

    def away() -> HubClient:
        asked.put(None)
        raise Unavailable("nobody answers")

    keeper = LeaseKeeper(interval=0.01)
    lease = Lease(launch="l", binding="global", principal=None, token="t", expires_at=0)  # noqa: S106  # no token
    keeper.keep(lease, away)
    for _ in range(3):
        asked.get(timeout=SECONDS)
    keeper.let_go("l")


def test_a_lease_is_renewed_when_the_machine_wakes_from_a_long_sleep(host: Host) -> None:
    watched = Watched(host)
    now = 0.0
    keeper = LeaseKeeper(pace=0.01, clock=lambda: now)
    with _runtime(host) as runtime:
        lease = _held(runtime, "slept")
    keeper.keep(lease, watched)
    assert watched.renewals.empty()
    now += DAY
    assert watched.renewals.get(timeout=SECONDS)[0] == "slept"
    keeper.let_go("slept")


def test_a_lease_that_the_hub_lost_is_opened_again_for_the_living_run_and_told(host: Host) -> None:
    told: queue.Queue[str] = queue.Queue()
    with _runtime(host) as runtime:
        lease = _held(runtime, "lost")
        runtime.end_launch("lost")
    assert not _reads(host, lease)
    keeper = LeaseKeeper(interval=0.01)
    keeper.keep(lease, lambda: _runtime(host), told.put)
    assert "holds again" in told.get(timeout=SECONDS)
    assert _reads(host, lease)
    keeper.let_go("lost")
    with pytest.raises(queue.Empty):
        told.get_nowait()


def test_a_refused_renewal_is_told_once_and_its_end_too(host: Host) -> None:
    told: queue.Queue[str] = queue.Queue()
    with _runtime(host) as runtime:
        lease = _held(runtime, "taken")
        newer = _held(runtime, "taken")
    keeper = LeaseKeeper(interval=0.01)
    keeper.keep(lease, lambda: _runtime(host), told.put)
    assert "another credential" in told.get(timeout=SECONDS)
    with _runtime(host) as runtime:
        runtime.end_launch("taken")
    assert "holds again" in told.get(timeout=SECONDS)
    keeper.let_go("taken")
    assert not _reads(host, newer)


def test_a_renewal_that_was_under_way_when_its_run_ended_leaves_no_lease(host: Host) -> None:
    began, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def held_up() -> HubClient:
        began.set()
        assert leave.wait(SECONDS)
        client = _runtime(host)
        end = client.end_launch

        def end_and_tell(launch: str) -> None:
            end(launch)
            ended.set()

        client.end_launch = end_and_tell  # type: ignore[method-assign]
        return client

    keeper = LeaseKeeper(interval=0.01)
    with _runtime(host) as runtime:
        lease = _held(runtime, "short")
        keeper.keep(lease, held_up)
        assert began.wait(SECONDS)
        keeper.let_go("short")
        runtime.end_launch("short")
        leave.set()
        assert ended.wait(SECONDS)
    assert not _reads(host, lease)


def test_people_hear_of_a_lease_that_ended_under_their_run(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amux.launcher.launch.LEASES", LeaseKeeper(interval=0.01))
    heard: queue.Queue[Notice] = queue.Queue()
    request = LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
    )
    with launch(request, replace(host, providers=scripted_registry()), heard=heard.put) as run:
        with _runtime(host) as runtime:
            runtime.end_launch(SessionStore(host.home).load(run.report.session).marker)
        warned = heard.get(timeout=SECONDS)
        assert any("holds again" in text for text in warned.warnings)
        record = SessionStore(host.home).load(run.report.session)
        assert set(warned.warnings) <= set(record.warnings)


def test_an_ended_launch_cannot_be_renewed(host: Host) -> None:
    with _runtime(host) as runtime:
        runtime.open_launch("over")
        runtime.end_launch("over")
        with pytest.raises(HubError, match="over"):
            runtime.renew_launch("over")
    with user_client(host) as user:
        assert user.health().enabled
