"""What the owner of a Hub gets while other accounts attack it: `benchmarks/hub_attack.py`.

Needs root, since the attackers run as other accounts: CONNECTIONS at once, SECONDS long, without
a credential and with one of a launch. For each attack the owner's search through the private
socket, median and slowest, beside the same with nobody else there, in one run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trustme

from amux.hub.values import ABSENT, SearchRequest, UpsertRequest
from fixtures.hubs import HubHome, new_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONNECTIONS: Final = 40
SECONDS: Final = 4.0
ATTACKER: Final = 60_123
PACE: Final = 0.02
"""Seconds between two calls of the owner."""
HEAD: Final = b"POST /v1/memory/search HTTP/1.1\r\nHost: localhost\r\n"
HEALTH: Final = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"
TRUSTING: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname = False
TRUSTING.verify_mode = ssl.CERT_NONE
Attack: TypeAlias = "Callable[[socket.socket, bytes], None]"


def _answered(channel: socket.socket) -> None:
    channel.recv(65536)


def _one_byte_chunks(channel: socket.socket, who: bytes) -> None:
    channel.sendall(HEAD + who + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 5400)
    _answered(channel)


def _endless_chunks(channel: socket.socket, who: bytes) -> None:
    chunk = b"80\r\n" + b"x" * 128 + b"\r\n"
    channel.sendall(HEAD + who + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 8192)
    _answered(channel)


def _dribbled_head(channel: socket.socket, who: bytes) -> None:
    for byte in HEALTH + who + b"\r\n":
        channel.send(bytes([byte]))


def _dribbled_body(channel: socket.socket, who: bytes) -> None:
    channel.sendall(HEAD + who + b"Content-Length: 400000\r\n\r\n")
    for _ in range(20_000):
        channel.send(b"x")


def _many_lines(channel: socket.socket, who: bytes) -> None:
    channel.sendall(HEALTH + who + b"a: b\r\n" * 2600 + b"\r\n")
    _answered(channel)


def _long_lines(channel: socket.socket, who: bytes) -> None:
    channel.sendall(HEALTH + who + (b"a: " + b"b" * 150 + b"\r\n") * 90 + b"\r\n")
    _answered(channel)


def _pipelined(channel: socket.socket, who: bytes) -> None:
    channel.sendall((HEALTH + who + b"\r\n") * 2000)
    while channel.recv(65536):
        pass


def _unread(channel: socket.socket, who: bytes) -> None:
    while True:
        channel.sendall((HEALTH + who + b"\r\n") * 2000)


def _open_and_close(channel: socket.socket, who: bytes) -> None:
    del channel, who


def _refused(channel: socket.socket, who: bytes) -> None:
    channel.sendall(HEAD + who + b"Content-Length: 2\r\n\r\n{}")
    _answered(channel)


def _garbage(channel: socket.socket, who: bytes) -> None:
    channel.sendall(who + os.urandom(60_000))
    _answered(channel)


def _body(channel: socket.socket, who: bytes, body: bytes) -> None:
    channel.sendall(HEAD + who + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    _answered(channel)


def _dear_search(channel: socket.socket, who: bytes) -> None:
    words = " ".join("abcdefghijklmnop")
    _body(channel, who, json.dumps({"query": words, "limit": 20}).encode())


def _wide_json(channel: socket.socket, who: bytes) -> None:
    _body(channel, who, json.dumps({f"k{n}": n for n in range(30_000)}).encode())


def _deep_json(channel: socket.socket, who: bytes) -> None:
    _body(channel, who, b"[" * 500_000)


def _abandoned(channel: socket.socket, who: bytes) -> None:
    body = b'{"query":"a b c d e f"}'
    channel.sendall(HEAD + who + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _handshakes(channel: socket.socket, who: bytes) -> None:
    del who
    TRUSTING.wrap_socket(channel).close()


STRANGERS: Final[dict[str, Attack]] = {
    "chunks of one byte": _one_byte_chunks,
    "endless chunks": _endless_chunks,
    "heads byte by byte": _dribbled_head,
    "bodies byte by byte": _dribbled_body,
    "heads of 2,600 lines": _many_lines,
    "heads of long lines": _long_lines,
    "pipelined calls": _pipelined,
    "answers left unread": _unread,
    "open and close": _open_and_close,
    "refused calls": _refused,
    "garbage": _garbage,
}
LAUNCHED: Final[dict[str, Attack]] = {
    **{name: STRANGERS[name] for name in list(STRANGERS)[:8]},
    "searches for 16 letters": _dear_search,
    "30,000 JSON fields": _wide_json,
    "JSON 500,000 deep": _deep_json,
    "abandoned searches": _abandoned,
}


def attack(place: Path | int, who: bytes, act: Attack) -> None:
    """Do one attack until killed, on CONNECTIONS at once, as another account."""
    "x".encode("idna")  # another account may not read where Python imports from
    os.setgroups([])
    os.setgid(ATTACKER)
    os.setuid(ATTACKER)

    def go_on() -> None:
        while True:
            with contextlib.suppress(OSError), _connected(place) as channel:
                channel.settimeout(10)
                act(channel, who)

    for _ in range(CONNECTIONS):
        threading.Thread(target=go_on, daemon=True).start()
    signal.pause()


def _connected(place: Path | int) -> socket.socket:
    if isinstance(place, int):
        return socket.create_connection(("127.0.0.1", place), 10)
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(place))
    return channel


@contextlib.contextmanager
def attacked(place: Path | int, who: bytes, act: Attack) -> Iterator[None]:
    """Let another account attack for the time of the block."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            attack(place, who, act)
        os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def latencies(hub: HubHome) -> list[float]:
    """Return the seconds of each of the owner's calls in SECONDS; every one has to succeed."""
    taken = []
    with hub.client("user") as user:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            began = time.perf_counter()
            user.search(SearchRequest(query="tea"))
            taken.append(time.perf_counter() - began)
            time.sleep(PACE)
    return taken


def show(name: str, taken: list[float], alone: float) -> None:
    """Print one line."""
    median = statistics.median(taken)
    print(
        f"{name:34} calls {len(taken):4}  median {median * 1000:6.1f} ms ({median / alone:5.1f} x)"
        f"  slowest {max(taken) * 1000:7.1f} ms"
    )


def main() -> int:
    """Print every attack."""
    if os.geteuid() != 0:
        print("hub_attack needs root: the attackers run as another account")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "h").mkdir(mode=0o711)
        hub = new_home(folder / "h")
        certificate = trustme.CA().issue_cert("localhost")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        (folder / "key.pem").chmod(0o600)
        certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        for key, value in (
            ("memory.enabled", "true"),
            ("memory.isolation", "principal"),
            ("hub.tls_cert", str(folder / "cert.pem")),
            ("hub.tls_key", str(folder / "key.pem")),
            ("hub.listen", "localhost:0"),
        ):
            hub.set(key, value)
        hub.registry.principals.add("attacker")
        hub.start()
        try:
            _all(hub)
        finally:
            hub.kill()
    return 0


def _all(hub: HubHome) -> None:
    with hub.client("runtime") as runtime:
        grant = runtime.open_launch("attack", principal="attacker")
    who = f"Authorization: Bearer {grant.token}\r\nAmux-Memory-Binding: {grant.binding}\r\n"
    with hub.agent(grant.token, grant.binding) as agent, hub.client("user") as user:
        for number in range(200):
            text = "".join(f"line {number} {word}\n" for word in itertools.repeat("abcdef", 400))
            request = UpsertRequest(path=f"n/{number}.md", content=text, expected_revision=ABSENT)
            agent.upsert(request)
        user.upsert(UpsertRequest(path="tea.md", content="# Tea\n", expected_revision=ABSENT))
    quiet = latencies(hub)
    alone = statistics.median(quiet)
    show("nobody else", quiet, alone)
    port = int(json.loads((hub.home / "hub.lock").read_text())["listen"].rpartition(":")[2])
    rows: list[tuple[str, Path | int, bytes, Attack]] = [
        *((f"stranger: {name}", hub.agents, b"", act) for name, act in STRANGERS.items()),
        ("stranger: TLS handshakes", port, b"", _handshakes),
        *((f"launch: {name}", hub.agents, who.encode(), act) for name, act in LAUNCHED.items()),
    ]
    for name, place, sent, act in rows:
        with attacked(place, sent, act):
            taken = latencies(hub)
        show(name, taken, alone)


if __name__ == "__main__":
    sys.exit(main())
