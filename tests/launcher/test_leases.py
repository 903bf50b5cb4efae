"""Leases of live runs are renewed until they are let go."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.hosts import user_client
from hub.client import HubClient
from hub.connection import connection_path
from hub.errors import HubError, Unavailable
from launcher.leases import LeaseKeeper

if TYPE_CHECKING:
    from launcher.host import Host


def test_a_kept_lease_is_renewed_at_the_hub_and_a_let_go_one_is_not(host: Host) -> None:
    renewals: queue.Queue[tuple[str, int]] = queue.Queue()

    def watched() -> HubClient:
        client = HubClient.from_file(connection_path(host.home, "runtime"))
        renew = client.renew_launch

        def renew_and_tell(launch: str) -> Any:  # noqa: ANN401  # the client's own answer
            lease = renew(launch)
            renewals.put((launch, lease.expires_at))
            return lease

        client.renew_launch = renew_and_tell  # type: ignore[method-assign]
        return client

    keeper = LeaseKeeper(interval=0.01)
    with watched() as runtime:
        opened = {name: runtime.open_launch(name) for name in ("kept-1", "kept-2")}
    for name in opened:
        keeper.keep(name, watched)
    seen = {renewals.get(timeout=20) for _ in range(20)}
    assert {name for name, _ in seen} == set(opened)
    assert all(expires >= opened[name].expires_at for name, expires in seen)
    keeper.let_go("kept-1")
    while not renewals.empty():
        renewals.get_nowait()
    later = [renewals.get(timeout=20)[0] for _ in range(20)]
    assert later.count("kept-1") <= 1, "one renewal may have been under way"
    keeper.let_go("kept-2")


def test_a_hub_that_is_away_is_asked_again_at_the_next_turn() -> None:
    asked: queue.Queue[None] = queue.Queue()

    def away() -> HubClient:
        asked.put(None)
        raise Unavailable("nobody answers")

    keeper = LeaseKeeper(interval=0.01)
    keeper.keep("launch", away)
    for _ in range(3):
        asked.get(timeout=20)
    keeper.let_go("launch")


def test_an_ended_launch_cannot_be_renewed(host: Host) -> None:
    with HubClient.from_file(connection_path(host.home, "runtime")) as runtime:
        runtime.open_launch("over")
        runtime.end_launch("over")
        with pytest.raises(HubError, match="over"):
            runtime.renew_launch("over")
    with user_client(host) as user:
        assert user.health().enabled
