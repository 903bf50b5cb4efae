"""Slow and broken clients: each is cut in time, and none of them stops another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.errors import Unavailable
from amux.hub.server import listener, protocol
from amux.hub.server.body import BodyReader
from amux.hub.server.listener import Listener
from amux.hub.server.sockets import bind_unix
from amux.hub.server.turns import PER_CREDENTIAL, PER_SCOPE, Shares, Workers
from amux.hub.unixsocket import connect
from amux.hub.values import Scope
from fixtures.hubs import HubHome, new_home, running
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Call


IDLE: Final = 1000
HEAD: Final = b"POST /v1/memory/upsert HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module", autouse=True)
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_and_half_open_connections_stop_nobody(shared_hub: HubHome) -> None:
    token = shared_hub.token("user").encode()
    half = HEAD + b"Authorization: Bearer " + token + b"\r\nContent-Length: 4000\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        for number in range(IDLE + 400):
            path = shared_hub.agents if number % 2 else shared_hub.private
            channel = stack.enter_context(connect(path, seconds=SECONDS))
            if number >= IDLE + 200:
                channel.sendall(half)
            elif number >= IDLE:
                channel.sendall(HEAD + b"X-Slow: ")
        for number in range(10):
            assert _upsert(shared_hub, f"slow/{number}.md") == 200


def test_an_endless_body_in_one_byte_chunks_is_refused_and_stops_nobody(
    shared_hub: HubHome,
) -> None:
    token = shared_hub.token("user").encode()
    head = HEAD + b"Authorization: Bearer " + token + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers: list[bytes] = []

    def bomb() -> None:
        with connect(shared_hub.private, seconds=SECONDS) as channel:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                channel.sendall(head)
                for _ in range(200):
                    channel.sendall(b"1\r\nx\r\n" * 4096)
            with contextlib.suppress(ConnectionResetError):
                answers.append(channel.recv(65536))

    bombs = [threading.Thread(target=bomb) for _ in range(2)]
    for thread in bombs:
        thread.start()
    assert _upsert(shared_hub, "beside-a-bomb.md") in {200, 409}
    for thread in bombs:
        thread.join(SECONDS)
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"400", b"400"]
    assert b"chunks" in answers[0]


def test_a_chunked_body_over_the_bound_is_refused_with_the_bound(shared_hub: HubHome) -> None:
    token = shared_hub.token("user").encode()
    head = HEAD + b"Authorization: Bearer " + token + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(shared_hub.private, seconds=SECONDS) as channel:
        channel.sendall(head + (b"8000\r\n" + b"x" * 32768 + b"\r\n") * 17)
        assert channel.recv(65536).split(b" ", 2)[1] == b"413"


def test_a_chunk_bomb_without_a_credential_is_not_even_read(shared_hub: HubHome) -> None:
    sent = 0
    with (
        connect(shared_hub.agents, seconds=SECONDS) as channel,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        channel.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent < 64 * 1024 * 1024:
            channel.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536
    assert sent < 8 * 1024 * 1024


@pytest.mark.parametrize(
    "flood",
    [b"X-Filler: " + b"y" * 4000 + b"\r\n", b"y" * 65536, b"a\r\n"],
    ids=["headers", "one line", "lines without colons"],
)
def test_an_endless_head_is_cut(shared_hub: HubHome, flood: bytes) -> None:
    sent = 0
    with connect(shared_hub.agents, seconds=SECONDS) as channel:
        channel.sendall(HEAD)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 16 * 1024 * 1024:
                channel.sendall(flood)
                sent += len(flood)
    assert sent < 4 * 1024 * 1024
    assert _upsert(shared_hub, "after-flood.md") in {200, 409}


def test_a_client_that_never_reads_its_answers_stops_nobody(shared_hub: HubHome) -> None:
    one = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(shared_hub.private, seconds=0.2) as channel:
        with contextlib.suppress(TimeoutError, BrokenPipeError):
            for _ in range(2000):
                channel.sendall(one * 100)
        assert _upsert(shared_hub, "beside-a-mute.md") in {200, 409}


def test_a_client_that_goes_away_in_the_middle_leaves_no_half_document(
    shared_hub: HubHome,
) -> None:
    token = shared_hub.token("user").encode()
    body = b'{"path":"gone.md","content":"' + b"z" * 30_000
    with connect(shared_hub.private, seconds=SECONDS) as channel:
        length = str(len(body) + 100).encode()
        channel.sendall(HEAD + b"Authorization: Bearer " + token + b"\r\n")
        channel.sendall(b"Content-Length: " + length + b"\r\n\r\n" + body)
    reply = shared_hub.call(
        "POST", "/v1/memory/get", {"path": "gone.md"}, token=shared_hub.token("user")
    )
    assert reply.fields["exists"] is False


@pytest.mark.parametrize(
    ("constant", "data"),
    [
        ("HEAD_SECONDS", b""),
        ("HEAD_SECONDS", b"GET /v1/health HTTP/1.1\r\nHost: local"),
        ("KEEP_ALIVE_SECONDS", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"),
        ("KEEP_ALIVE_SECONDS", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ],
    ids=["silent", "half a head", "half a second head", "idle after an answer"],
)
def test_a_connection_without_a_whole_request_is_cut_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant: str, data: bytes
) -> None:
    monkeypatch.setattr(listener if constant == "KEEP_ALIVE_SECONDS" else protocol, constant, 0.2)
    with _serving(tmp_path / "s.sock", _hello) as path, connect(path, seconds=SECONDS) as channel:
        channel.sendall(data)
        answer = _read_to_end(channel)
    assert answer.count(b"200 OK") == data.count(b"\r\n\r\n")


def test_a_client_that_leaves_its_answers_unread_is_cut_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 0.2)

    async def large(scope: Call, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with _serving(tmp_path / "s.sock", large) as path, connect(path, seconds=SECONDS) as channel:
        channel.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        probe = select_hangup(channel)
        assert probe
        assert len(_read_to_end(channel)) < 64 * 65536


def test_when_a_socket_is_full_the_oldest_idle_connection_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "most_connections", lambda: 5)
    with _serving(tmp_path / "s.sock", _hello) as path, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(path, seconds=SECONDS)) for _ in range(5)]
        late = stack.enter_context(connect(path, seconds=SECONDS))
        late.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in _read_to_end(late)
        assert _read_to_end(idle[0]) == b""
        idle[1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in _read_to_end(idle[1])


def test_a_body_that_does_not_arrive_is_given_up_in_time(tmp_path: Path) -> None:
    seen: list[str] = []

    async def reading(scope: Call, receive: Receive, send: Send) -> None:
        from starlette.requests import Request  # noqa: PLC0415  # only here

        from amux.hub.errors import HubError  # noqa: PLC0415  # only here

        try:
            await BodyReader(seconds=0.2).read(Request(scope, receive), lambda _: None)
        except HubError as error:
            seen.append(error.message)
        await _hello(scope, receive, send)

    with _serving(tmp_path / "s.sock", reading) as path, connect(path, seconds=SECONDS) as channel:
        channel.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        assert b"200 OK" in channel.recv(65536)
    assert seen == ["the body did not arrive in 0.2 seconds"]


def select_hangup(channel: socket.socket) -> bool:
    """Wait, without reading, until the other side has closed."""
    import select  # noqa: PLC0415  # only here

    poll = select.poll()
    poll.register(channel, 0)
    return bool(poll.poll(SECONDS * 1000))


def _upsert(hub: HubHome, path: str) -> int:
    return hub.call(
        "POST",
        "/v1/memory/upsert",
        {"path": path, "content": f"about {path}\n", "expected_revision": "absent"},
        token=hub.token("user"),
    ).status


def _read_to_end(channel: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while part := channel.recv(65536):
            answer += part
    return answer


async def _hello(scope: Call, receive: Receive, send: Send) -> None:
    del scope, receive
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hi"})


@contextlib.contextmanager
def _serving(path: Path, app: ASGIApp) -> Iterator[Path]:
    """Run the Hub's listener alone, in a thread, with an application of the test's."""
    bound = bind_unix(path, mode=0o600)
    stops: list[Callable[[], object]] = []
    up = threading.Event()

    async def run() -> None:
        served = Listener(app, bound)
        loop = asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(served.stop))
        loop.call_soon(up.set)
        await served.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert up.wait(SECONDS)
        yield path
    finally:
        stops[0]()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the Hub did not stop"
        bound.close()


def test_strangers_who_fill_a_socket_push_each_other_out_and_never_a_known_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "most_connections", lambda: 4)
    leave, inside = threading.Event(), threading.Event()

    async def known(scope: Call, receive: Receive, send: Send) -> None:
        if scope["path"] == "/known":
            scope["state"]["caller"] = "somebody"
            inside.set()
        await asyncio.to_thread(leave.wait, SECONDS)
        await _hello(scope, receive, send)

    head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with _serving(tmp_path / "s.sock", known) as path, contextlib.ExitStack() as stack:
        mine = stack.enter_context(connect(path, seconds=SECONDS))
        mine.sendall(b"GET /known" + head)
        assert inside.wait(SECONDS)
        strangers = []
        for _ in range(8):
            stranger = stack.enter_context(connect(path, seconds=SECONDS))
            stranger.sendall(b"GET /stranger" + head)
            strangers.append(stranger)
        assert _read_to_end(strangers[0]) == b""
        leave.set()
        assert b"200 OK" in _read_to_end(mine)
        assert b"200 OK" in _read_to_end(strangers[-1])


def test_a_stop_does_not_wait_for_a_client_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GRACE_SECONDS", 3600)  # what a stop would wait for it

    async def large(scope: Call, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 4_000_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with contextlib.ExitStack() as stack, _serving(tmp_path / "s.sock", large) as path:
        channel = stack.enter_context(connect(path, seconds=SECONDS))
        # Closed only after the Hub has stopped.
        channel.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert channel.recv(1)


def test_calls_and_bytes_beyond_a_credentials_share_are_turned_away() -> None:
    shares = Shares(calls=2, held=100)
    with shares.call("one") as first, shares.call("one") as second:
        with pytest.raises(Unavailable, match="too many calls"), shares.call("one"):
            pass
        with shares.call("another") as other:
            other(100)
        first(60)
        second(40)
        with pytest.raises(Unavailable, match="too much at once"):
            second(1)
    with shares.call("one") as again:
        again(100)


def test_a_busy_credential_and_a_busy_scope_leave_threads_for_the_others() -> None:
    leave = threading.Event()

    async def run() -> tuple[list[str], int, int]:
        began: list[str] = []

        def wait(name: str) -> None:
            began.append(name)
            leave.wait(SECONDS)

        with ThreadPoolExecutor(PER_SCOPE + 2) as executor:
            workers = Workers(executor)
            busy = [
                asyncio.create_task(
                    workers.run(partial(wait, name), scope=Scope("a"), credential=name)
                )
                for name in ("one", "two", "three")
                for _ in range(20)
            ]
            await asyncio.sleep(0)
            other = await workers.run(lambda: "other", scope=Scope("b"), credential="one more")
            seen = list(began)
            workers.stop()
            leave.set()
            ended = await asyncio.gather(*busy, return_exceptions=True)
        refused = [type(one) for one in ended].count(Unavailable)
        return [*seen, other], ended.count(None), refused

    seen, finished, refused = asyncio.run(run())
    assert seen == ["one"] * PER_CREDENTIAL + ["two"] * PER_CREDENTIAL + ["other"]
    assert (finished, refused) == (PER_SCOPE, 60 - PER_SCOPE)


def test_one_account_that_opens_too_many_connections_pushes_out_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PER_STRANGER", 3)
    strangers: list[int | None] = [None, 7, 7, 8, 7, 7]
    monkeypatch.setattr(protocol, "peer_key", lambda _: strangers.pop(0))
    with _serving(tmp_path / "s.sock", _hello) as path, contextlib.ExitStack() as stack:
        mine, first, *others = [
            stack.enter_context(connect(path, seconds=SECONDS)) for _ in range(6)
        ]
        assert _read_to_end(first) == b""
        for channel in (mine, *others):
            channel.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in _read_to_end(channel)


def test_a_call_whose_caller_is_gone_is_dropped_when_its_turn_comes() -> None:
    done: list[str] = []

    async def run() -> list[object]:
        with ThreadPoolExecutor(2) as executor:
            workers = Workers(executor)
            calls = [
                workers.run(
                    partial(done.append, name),
                    scope=Scope("a"),
                    credential="one",
                    gone=lambda name=name: name == "gone",  # type: ignore[misc]
                )
                for name in ("first", "gone", "last")
            ]
            return list(await asyncio.gather(*calls, return_exceptions=True))

    outcomes = asyncio.run(run())
    assert sorted(done) == ["first", "last"]
    assert isinstance(outcomes[1], Unavailable)


@pytest.mark.parametrize("leaves", [True, False], ids=["closed", "only listening"])
def test_a_caller_that_closed_is_told_from_one_that_only_listens(
    tmp_path: Path, *, leaves: bool
) -> None:
    began, told = threading.Event(), threading.Event()
    seen: list[bool] = []

    async def waiting(scope: Call, receive: Receive, send: Send) -> None:
        call = scope["state"][protocol.CALL]
        began.set()
        while not told.is_set():  # noqa: ASYNC110  # set from another thread
            await asyncio.sleep(0)
        if leaves:
            while not call.gone:  # noqa: ASYNC110  # the connection tells when it is asked
                await asyncio.sleep(0)
        seen.append(call.gone)
        await _hello(scope, receive, send)

    with _serving(tmp_path / "s.sock", waiting) as path:
        with connect(path, seconds=SECONDS) as channel:
            channel.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert began.wait(SECONDS)
            if not leaves:
                channel.shutdown(socket.SHUT_WR)
                told.set()
                assert b"200 OK" in _read_to_end(channel)
        told.set()
    assert seen == [leaves]


@pytest.mark.root
def test_another_account_holds_only_its_share_of_the_agents_socket() -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory() as name:
        # Unlike pytest's folders this one can be passed by others.
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "h").mkdir(mode=0o711)
        with running(folder / "h") as hub:
            told, tell = os.pipe()
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    os.setgroups([])
                    os.setgid(nobody)
                    os.setuid(nobody)
                    held = [connect(hub.agents, seconds=SECONDS) for _ in range(500)]
                    held[-1].sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    os.write(tell, held[-1].recv(12))
                    signal.pause()
                os._exit(1)
            try:
                os.close(tell)
                assert os.read(told, 12) == b"HTTP/1.1 200"
                assert _upsert(hub, "beside.md") == 200
                assert hub.process is not None
                entries = list(Path(f"/proc/{hub.process.pid}/fd").iterdir())
                assert protocol.PER_STRANGER <= len(entries) < protocol.PER_STRANGER + 40
            finally:
                os.close(told)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


# The real Hub, where what a stranger caused has to be rested from for ever.
STRICT: Final = """
import sys
from amux.hub.server import __main__, peers
peers.UNKNOWN_REST = 1e9
sys.exit(__main__.main())
"""


@pytest.mark.root
def test_what_a_stranger_causes_is_paid_by_the_stranger_alone() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "h").mkdir(mode=0o711)
        hub = new_home(folder / "h")
        hub.set("memory.enabled", "true")
        told, tell = os.pipe()
        hub.process = subprocess.Popen(
            [sys.executable, "-P", "-c", STRICT, "--ready-fd", str(tell)],
            env=hub.environ,
            pass_fds=(tell,),
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        os.close(tell)
        try:
            with os.fdopen(told, "rb") as ready:
                assert ready.read() == b"ready"
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    os._exit(_stranger_is_held_back(hub))
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            hub.kill()


def _stranger_is_held_back(hub: HubHome) -> int:
    """Ask as nobody, whose connection alone costs too much here; the owner is served."""
    request = b"GET /v1/memory/capability HTTP/1.1\r\nHost: localhost\r\n"
    token = hub.token("user").encode()
    owner = connect(hub.private, seconds=SECONDS)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    stranger = connect(hub.agents, seconds=SECONDS)
    stranger.sendall(request + b"\r\n")
    owner.sendall(request + b"Authorization: Bearer " + token + b"\r\n\r\n")
    if b"200" not in owner.recv(12):
        return 2
    stranger.setblocking(False)  # noqa: FBT003  # the socket's own signature
    try:
        stranger.recv(1)
    except BlockingIOError:
        return 0
    return 3
