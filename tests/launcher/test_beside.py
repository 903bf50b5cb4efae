"""A server beside a screen: its socket, its messages, and its end."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest

from amux.launcher.channel.jsonlines import Controls
from amux.launcher.errors import AgentFailed, ChannelError
from amux.launcher.process.run_processes import start_time
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.launcher.provider_call import held
from amux.launcher.steps import app_server
from amux.launcher.steps.app_server import Server, start_server
from amux.providers.base import Confirmed, LaunchPlan
from amux.providers.errors import BadArguments, NotConfirmed, RequestRefused
from amux.providers.generic import GenericProvider
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import JsonObject

PROGRAM = Path(__file__).with_name("socket_server.py")


@pytest.fixture(name="folder")
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ax") as made:
        yield Path(made)


def start(folder: Path, kind: str = "talks") -> Server:
    socket = str(folder / "s.sock")
    request = SpawnRequest(
        argv=("a screen",),
        environment={"PATH": os.environ["PATH"]},
        cwd=str(folder),
        marker=os.urandom(16).hex(),
    )
    argv = (sys.executable, str(PROGRAM), socket, kind)
    return start_server(request, LaunchPlan(argv=("a screen",), server=argv, socket=socket))


def test_requests_notifications_and_refusals_travel_over_the_socket(folder: Path) -> None:
    server = start(folder)
    try:
        answer = server.channel.request("hello", {"a": "é" * 500_000}, deadline=SECONDS)
        assert len(answer["echo"]["a"]) == 500_000
        assert server.channel.receive(deadline=SECONDS)["method"] == "thread/started"
        with pytest.raises(RequestRefused, match="never"):
            server.channel.request("no", {}, deadline=SECONDS)
    finally:
        server.stop()
    assert server.process.status is not None


def test_several_requests_at_once_keep_their_order_and_their_refusals(folder: Path) -> None:
    server = start(folder)
    try:
        calls: list[tuple[str, JsonObject]] = [("a", {"n": 1}), ("no", {}), ("b", {"n": 2})]
        first, refused, last = server.channel.request_all(calls, deadline=SECONDS)
        assert (first, last) == ({"echo": {"n": 1}}, {"echo": {"n": 2}})
        assert isinstance(refused, RequestRefused)
    finally:
        server.stop()


def test_controls_see_every_request_before_it_is_sent_and_every_result_after(folder: Path) -> None:
    heard: list[object] = []

    def before(method: str, params: JsonObject) -> JsonObject:
        if method == "forbidden":
            raise BadArguments("amux owns that")
        return {**params, "ours": True}

    server = start(folder)
    try:
        server.channel.controls = Controls(
            before=before, after=lambda method, result: heard.append((method, result))
        )
        sent = server.channel.request("a", {"ours": False}, deadline=SECONDS)
        assert sent == {"echo": {"ours": True}}
        assert heard == [("a", sent)]
        with pytest.raises(BadArguments):
            server.channel.request("forbidden", {}, deadline=SECONDS)
        with pytest.raises(BadArguments):
            server.channel.send({"id": 99, "method": "forbidden", "params": {}})
        with pytest.raises(RequestRefused):
            server.channel.request("no", {}, deadline=SECONDS)
        assert len(heard) == 1
    finally:
        server.stop()


def test_a_server_that_ends_before_it_listens_is_told_with_its_stderr(folder: Path) -> None:
    with pytest.raises(AgentFailed, match=r"exit 1.*before it listened[\s\S]*cannot serve"):
        start(folder, "ends")


def test_a_server_that_never_listens_is_ended_at_the_deadline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def remember(request: SpawnRequest) -> object:
        started.append(spawn(request))
        return started[0]

    monkeypatch.setattr(app_server, "LISTEN_SECONDS", 0.5)
    monkeypatch.setattr(app_server, "spawn", remember)
    with pytest.raises(ChannelError, match=r"did not listen on .*s\.sock in 0\.5 s"):
        start(folder, "never")
    assert started[0].status is not None
    assert start_time(started[0].pid) != started[0].start_time


def test_a_socket_that_speaks_no_websocket_is_a_clear_error(folder: Path) -> None:
    with pytest.raises(ChannelError, match="speaks no WebSocket"):
        start(folder, "plain")


def test_a_path_too_long_for_a_socket_is_refused_with_what_to_do(folder: Path) -> None:
    deep = folder / ("x" * 100)
    deep.mkdir()
    with pytest.raises(ChannelError, match="AMUX_RUNS"):
        start(deep)


def test_a_server_that_dies_fails_the_request_that_waits(folder: Path) -> None:
    server = start(folder)
    try:
        with pytest.raises(AgentFailed, match="it died"):
            server.channel.request("die", {}, deadline=SECONDS)
    finally:
        server.stop()


def test_every_message_is_settled_and_quiet_times_are_used_to_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_server, "QUIET_SECONDS", 0.05)
    looked = threading.Event()
    told: list[str | None] = []

    def settle(message: JsonObject | None, settled: frozenset[str]) -> Confirmed | None:
        if message is not None:
            return Confirmed(native_id=message["params"]["id"])
        if settled == {"t1"}:
            return Confirmed(native_id="t2")
        looked.set()
        return None

    server = start(folder)
    try:
        server.attend(settle, lambda one: told.append(one.native_id), pytest.fail)
        assert looked.wait(SECONDS)
        assert told == ["t1", "t2"]
    finally:
        server.stop()


def test_a_thread_that_cannot_be_settled_is_told_once(folder: Path) -> None:
    reasons: list[str] = []
    refused = threading.Event()

    def settle(message: JsonObject | None, settled: frozenset[str]) -> Confirmed | None:
        del settled
        raise NotConfirmed("no", answer=str(message))

    def hear(reason: str) -> None:
        reasons.append(reason)
        refused.set()

    server = start(folder)
    try:
        server.attend(settle, lambda _: None, hear)
        assert refused.wait(SECONDS)
    finally:
        server.stop()
    assert len(reasons) == 1
    assert "thread/started" in reasons[0]


class Careless(GenericProvider):
    """Makes a mistake where it is to settle a thread."""

    def on_server_message(
        self,
        channel: object,
        message: JsonObject | None,
        request: object,
        grant: object,
        settled: frozenset[str],
    ) -> Confirmed | None:
        raise KeyError(channel, message, request, grant, settled)


@pytest.mark.parametrize("where", ["the provider", "the record"])
def test_a_mistake_while_a_thread_is_settled_is_told_and_not_lost(folder: Path, where: str) -> None:
    reasons: list[str] = []
    refused = threading.Event()
    attend = held(Careless().on_server_message, Confirmed, NoneType)

    def settle(message: JsonObject | None, settled: frozenset[str]) -> Confirmed | None:
        if where == "the provider":
            return attend(None, message, None, None, settled)
        return Confirmed(native_id="t1")

    def told(confirmed: Confirmed) -> None:
        raise OSError(f"no space left for {confirmed.native_id}")

    def hear(reason: str) -> None:
        reasons.append(reason)
        refused.set()

    server = start(folder)
    try:
        server.attend(settle, told, hear)
        assert refused.wait(SECONDS)
    finally:
        server.stop()
    (reason,) = reasons
    assert "failed in on_server_message: KeyError" in reason or "no space left for t1" in reason
