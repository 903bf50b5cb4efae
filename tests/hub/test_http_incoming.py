"""How the bytes of a connection become requests, and what a peer owes for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.server.gate import Quota
from amux.hub.server.incoming import (
    CHUNK_BYTES,
    FREE_CHUNKS,
    HEAD_BYTES,
    HEAD_LINES,
    Incoming,
    Malformed,
    TooLarge,
)
from amux.hub.server.peers import KNOWN_REST, UNKNOWN_REST, Peer
from amux.hub.unixsocket import connect
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fixtures.hubs import HubHome

MOST: Final = 512 * 1024
FIRST: Final = b"POST /v1/memory/get HTTP/1.1\r\nHost: localhost\r\n"
LENGTH: Final = FIRST + b"Content-Length: 4\r\n\r\n"
CHUNKED: Final = FIRST + b"Transfer-Encoding: chunked\r\n\r\n"
DEALT: Final[dict[str, Callable[[bytes], list[bytes]]]] = {
    "at once": lambda data: [data],
    "one by one": lambda data: [data[at : at + 1] for at in range(len(data))],
    "in sevens": lambda data: [data[at : at + 7] for at in range(0, len(data), 7)],
}


def _take(data: bytes, deal: str, most: int = MOST) -> list[tuple[bytes, bytes]]:
    """Return each request's head and body."""
    incoming, found = Incoming(), []
    head: bytes | None = None
    for part in DEALT[deal](data):
        incoming.feed(part)
        while True:
            if head is None:
                head = incoming.head()
                if head is None:
                    break
            body = incoming.body(most)
            if body is None:
                break
            found.append((head, body))
            head = None
    return found


@pytest.mark.parametrize("deal", DEALT)
@pytest.mark.parametrize(
    ("data", "bodies"),
    [
        (LENGTH + b"abcd", [b"abcd"]),
        (LENGTH + b"abcd" + LENGTH + b"efgh" + FIRST + b"\r\n", [b"abcd", b"efgh", b""]),
        (CHUNKED + b"4\r\nabcd\r\n0\r\n\r\n", [b"abcd"]),
        (CHUNKED + b"1;x=y\r\na\r\n03\r\nbcd\r\n0\r\n\r\n" + LENGTH + b"efgh", [b"abcd", b"efgh"]),
        (CHUNKED + b"A\r\n0123456789\r\n0\r\nX: y\r\nZ: w\r\n\r\n" + LENGTH + b"efgh",
         [b"0123456789", b"efgh"]),
        (CHUNKED + b"0\r\n\r\n" + LENGTH + b"efgh", [b"", b"efgh"]),
        (CHUNKED + b"2\r\n\r\n\r\n0\r\n\r\n", [b"\r\n"]),
    ],
    ids=["length", "three", "chunk", "chunks", "trailer", "no chunk", "chunk of line ends"],
)  # fmt: skip
def test_requests_are_the_same_however_their_bytes_are_dealt_out(
    data: bytes, bodies: list[bytes], deal: str
) -> None:
    found = _take(data, deal)
    assert [body for _, body in found] == bodies
    assert all(head.startswith(FIRST) and head.endswith(b"\r\n\r\n") for head, _ in found)


@pytest.mark.parametrize("deal", DEALT)
@pytest.mark.parametrize(
    "data",
    [
        FIRST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        FIRST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n",
        FIRST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        FIRST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0"),
        FIRST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
        FIRST + b"Content-Length: 4, 4\r\n\r\n",
        FIRST + b"Content-Length: +4\r\n\r\n",
        FIRST + b"Content-Length:\r\n\r\n",
        FIRST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        FIRST.replace(b"\r\n", b"\n") + b"\n",
        FIRST + b"X: a\nContent-Length: 4\r\n\r\n",
        FIRST + b"X: a\rContent-Length: 4\r\n\r\n",
        FIRST + b"X: y\r\n" * HEAD_LINES + b"\r\n",
        FIRST + b"X: " + b"y" * HEAD_BYTES + b"\r\n\r\n",
        FIRST + b"y" * (2 * HEAD_BYTES),
        b"\r\n" + FIRST + b"\r\n",
        b"\x16\x03\x01\x02\x00",
        CHUNKED + b"4\nabcd\n0\n\n" + b"x" * 300,
        CHUNKED + b"4\r\nabcdXX",
        CHUNKED + b"-4\r\nabcd\r\n",
        CHUNKED + b"0x4\r\nabcd\r\n",
        CHUNKED + b"\r\nabcd\r\n",
        CHUNKED + b"1" * 9 + b"\r\n",
        CHUNKED + b"4;" + b"x" * 300,
        CHUNKED + b"0\r\n" + b"X: " + b"y" * 5000,
        CHUNKED + b"1\r\nx\r\n" * (FREE_CHUNKS + 2),
    ],
)
def test_what_two_readers_could_take_for_different_requests_is_refused(
    data: bytes, deal: str
) -> None:
    with pytest.raises(Malformed):
        _take(data, deal)


def test_a_body_of_ordinary_chunks_passes_and_its_bound_holds() -> None:
    chunk = b"%x\r\n" % CHUNK_BYTES + b"x" * CHUNK_BYTES + b"\r\n"
    whole = CHUNKED + chunk * 4096 + b"0\r\n\r\n"
    assert [len(body) for _, body in _take(whole, "at once")] == [4096 * CHUNK_BYTES]
    with pytest.raises(TooLarge):
        _take(whole, "at once", most=4096 * CHUNK_BYTES - 1)
    with pytest.raises(TooLarge):
        _take(LENGTH + b"abcd", "at once", most=3)
    with pytest.raises(TooLarge):
        _take(CHUNKED + b"FFFFFFFF\r\n", "at once")


def test_a_log_holds_so_many_lines_of_strangers_and_says_how_many_are_missing() -> None:
    now = 0.0
    quota = Quota(2, 10.0, clock=lambda: now)
    assert [quota.passes() for _ in range(5)] == [True, True, False, False, False]
    now = 10.0
    assert quota.passes()
    assert (quota.collect(), quota.collect()) == (3, 0)


class _Turns:
    """A connection that notes its turns."""

    def __init__(self, name: str, told: list[str], peer: Peer) -> None:
        self._name, self._told, self._peer = name, told, peer

    def advance(self) -> None:
        self._told.append(self._name)
        self._peer.charge(0.1, known=False)

    def wait_for_turn(self, *, waiting: bool) -> None:
        self._told.append(f"{self._name} {'waits' if waiting else 'goes on'}")


def test_a_peer_that_owes_time_waits_and_its_connections_go_on_one_by_one() -> None:
    now = 0.0
    told: list[str] = []

    async def play() -> None:
        nonlocal now
        peer = Peer(asyncio.get_running_loop(), clock=lambda: now)
        one, two, gone = (_Turns(name, told, peer) for name in ("one", "two", "gone"))
        for connection in (one, two, gone, two):
            peer.turn(connection)
        peer.leave(gone)
        assert peer.owes == pytest.approx(0.1 * UNKNOWN_REST)
        assert told == ["one", "two waits", "gone waits"]
        peer.wake()  # the timer that comes too early
        assert told[3:] == []
        now += 0.1 * UNKNOWN_REST
        peer.wake()
        assert told[3:] == ["two goes on", "two"]
        now += 0.1 * UNKNOWN_REST
        peer.charge(0.1, known=True)
        assert peer.owes == pytest.approx(0.1 * KNOWN_REST)

    asyncio.run(play())


def test_a_caller_that_sends_all_and_then_only_listens_is_answered(shared_hub: HubHome) -> None:
    import socket  # noqa: PLC0415  # only here

    token = shared_hub.token("user").encode()
    body = b'{"path":"MEMORY.md"}'
    head = FIRST + b"Authorization: Bearer " + token + b"\r\nContent-Length: 20\r\n\r\n"
    with connect(shared_hub.private, seconds=SECONDS) as channel:
        channel.sendall(head + body)
        channel.shutdown(socket.SHUT_WR)
        answer = b""
        while part := channel.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_body_with_both_framings_is_refused_and_what_follows_is_no_request(
    shared_hub: HubHome,
) -> None:
    second = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    token = shared_hub.token("user").encode()
    head = FIRST + b"Authorization: Bearer " + token + b"\r\nContent-Length: 4\r\n"
    with connect(shared_hub.private, seconds=SECONDS) as channel:
        channel.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second)
        answer = b""
        while part := channel.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.startswith(b"HTTP/1.1 400")
