from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import trustme

from amux.materializer.agentside import transport
from amux.materializer.agentside.connection import Connection
from amux.materializer.agentside.errors import Failure
from fixtures.waiting import SECONDS
from tests.agentside.scripted_hub import Asked, Documents, http, tls_hub, unix_hub
from tests.agentside.side import SYSTEM, TOKEN, Side, error_of, write_connection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agentside.scripted_hub import ScriptedHub

FOUND = b'{"path":"MEMORY.md","exists":false,"revision":"absent"}'


def _without_a_wait(side: Side, **env: str) -> dict[str, object]:
    """Return the error of a call that came before what every wait for a Hub is bounded by."""
    bound = min(transport.CONNECT, transport.LONGEST)
    done = side.memory("show", "MEMORY.md", env=env, within=bound)
    assert done.returncode == 5
    return error_of(done)


def test_a_hub_that_is_not_there_is_one_sentence_and_status_5(side: Side) -> None:
    error = _without_a_wait(side)
    assert error["code"] == "unavailable"
    assert "cannot be reached" in str(error["message"])


def test_a_socket_that_a_killed_hub_left_behind_is_status_5(side: Side, tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "home/hub.sock"))
    left.close()
    assert "refused" in str(_without_a_wait(side)["message"])


def _exchange(url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    connection = Connection(url=url, token=TOKEN, ca_pem=None, binding=None)
    return transport.Exchange(connection).send("POST", "/v1/memory/get", body)


def test_a_hub_that_stays_silent_is_given_up_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PATIENCE", 0.01)
    monkeypatch.setattr(transport, "LONGEST", 0.1)
    with unix_hub(tmp_path / "hub.sock", lambda _: None), pytest.raises(Failure) as caught:
        _exchange(f"unix:{tmp_path}/hub.sock")
    assert caught.value.code == "unavailable"
    assert "does not answer" in caught.value.message
    assert "read the document again" in caught.value.message


def test_a_hub_whose_queue_is_full_is_given_up_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "hub.sock"))
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(tmp_path / "hub.sock"))
            with pytest.raises(Failure, match="cannot be reached"):
                _exchange(f"unix:{tmp_path}/hub.sock")


def test_a_tls_port_that_stays_silent_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "CONNECT", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(Failure, match="cannot be reached"),
    ):
        _exchange(f"https://127.0.0.1:{silent.getsockname()[1]}")


def test_a_slow_hub_is_waited_for_however_often_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Semaphore(0)
    really = transport.is_stopped

    def look(channel: socket.socket) -> bool:
        looked.release()
        return really(channel)

    def script(_: Asked) -> bytes:
        for _turn in range(20):
            assert looked.acquire(timeout=SECONDS)
        return http(200, FOUND)

    monkeypatch.setattr(transport, "PATIENCE", 0.01)
    monkeypatch.setattr(transport, "is_stopped", look)
    with unix_hub(tmp_path / "hub.sock", script):
        assert _exchange(f"unix:{tmp_path}/hub.sock") == (200, FOUND)


def test_a_hub_whose_process_was_stopped_is_not_waited_for(side: Side, home: Path) -> None:
    script = (
        "import signal, socket, sys, os\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[1])\n"
        "listener.listen(8)\n"
        "os.write(1, b'x')\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    command = [sys.executable, "-c", script, str(home / "hub.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.read(1) == b"x"
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            # Which would otherwise wait for all of it.
            done = side.memory("show", "MEMORY.md", within=transport.LONGEST / 2)
        finally:
            stopped.kill()
    assert done.returncode == 5
    assert "does not answer" in str(error_of(done)["message"])


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"pat\r\n1;x=y\r\nh\r\n'
        + f"{len(FOUND) - 6:x}".encode()
        + b"\r\n"
        + FOUND[6:]
        + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + FOUND,
        b"HTTP/1.1 100 Continue\r\n\r\n" + http(200, FOUND),
        b"HTTP/1.0 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(FOUND) + FOUND,
    ],
    ids=["chunked", "until the end", "after a 100", "lower case"],
)
def test_every_framing_of_http_is_understood(side: Side, tmp_path: Path, answer: bytes) -> None:
    with unix_hub(tmp_path / "home/hub.sock", lambda _: answer):
        done = side.memory("show", "MEMORY.md")
    assert json.loads(done.stdout) == json.loads(FOUND)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", 5),
        (b"SSH-2.0-x\r\n\r\n", 5),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 5),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{", 5),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", 5),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 5),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", 5),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, 5),
        (http(200, b"not json"), 1),
        (http(200, b"[]"), 1),
        (http(200, b"\xff"), 1),
        (http(502, b"<html>bad gateway</html>"), 1),
        (http(500, b'{"error": "text"}'), 1),
        (http(500, b'{"error": {"code": "brand_new", "message": "m", "error": 1}}'), 1),
    ],
)
def test_an_answer_that_is_not_the_hubs_is_an_error_and_no_traceback(
    side: Side, tmp_path: Path, answer: bytes, status: int
) -> None:
    with unix_hub(tmp_path / "home/hub.sock", lambda _: answer):
        done = side.memory("show", "MEMORY.md")
    assert done.returncode == status
    assert error_of(done)["message"]


def test_a_hub_that_answers_before_it_has_read_the_request_is_heard(
    side: Side, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "home/hub.sock"))
        listener.listen(8)

        def refuse() -> None:
            channel, _ = listener.accept()
            with channel:
                channel.sendall(http(413, b'{"error":{"code":"limit_exceeded","message":"m"}}'))
                channel.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=refuse)
        thread.start()
        text = b"x" * 900_000
        done = side.memory("upsert", "a.md", "--expected-revision", "absent", stdin=text)
        thread.join(SECONDS)
    assert (done.returncode, error_of(done)["code"]) == (6, "limit_exceeded")


def test_a_slow_reader_gets_the_whole_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Semaphore(0)
    monkeypatch.setattr(transport, "PATIENCE", 0.01)

    def look(_channel: socket.socket) -> bool:
        looked.release()
        return False

    monkeypatch.setattr(transport, "is_stopped", look)
    received = bytearray()
    text = b"x" * 900_000
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "hub.sock"))
        listener.listen(8)

        def serve() -> None:
            channel, _ = listener.accept()
            with channel:
                for _turn in range(20):
                    assert looked.acquire(timeout=SECONDS)
                while len(received) < len(text):
                    received.extend(channel.recv(65536))
                channel.sendall(http(200, FOUND))

        thread = threading.Thread(target=serve)
        thread.start()
        assert _exchange(f"unix:{tmp_path}/hub.sock", text) == (200, FOUND)
        thread.join(SECONDS)


def test_a_socket_path_longer_than_an_address_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    here = os.open(folder, os.O_PATH)
    try:
        with unix_hub(
            folder.__class__(f"/proc/self/fd/{here}/hub.sock"), lambda _: http(200, FOUND)
        ):
            assert _exchange(f"unix:{folder}/hub.sock") == (200, FOUND)
    finally:
        os.close(here)


def test_in_a_sandbox_without_network_the_way_out_is_named(side: Side) -> None:
    error = _without_a_wait(side, CODEX_SANDBOX_NETWORK_DISABLED="1")
    assert "sandbox without network" in str(error["message"])
    assert "amux_memory_search" in str(error["message"])


def test_a_kernel_that_forbids_sockets_is_named_a_sandbox(side: Side, hub: ScriptedHub) -> None:
    # What seccomp does in Codex's sandbox: connect() fails with EPERM although the Hub runs.
    script = (
        "import socket, sys, runpy\n"
        "class Forbidden(socket.socket):\n"
        "    def connect(self, address):\n"
        "        raise PermissionError(1, 'Operation not permitted')\n"
        "socket.socket = Forbidden\n"
        "sys.argv[:] = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = subprocess.run(
        [SYSTEM, "-I", "-S", "-c", script, side.command[-1], "memory", "show", "MEMORY.md"],
        env=side.environ,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 5
    assert "sandbox" in str(error_of(done)["message"])
    assert hub.asked == []


@pytest.fixture(name="authority", scope="module")
def _authority() -> trustme.CA:
    return trustme.CA()


def _server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_a_hub_over_tls_is_verified_and_reached(
    side: Side, home: Path, authority: trustme.CA
) -> None:
    pem = authority.cert_pem.bytes().decode()
    for name in ("127.0.0.1", "localhost"):
        with tls_hub(_server_context(authority, name), Documents()) as (hub, port):
            write_connection(home / "connections/user.json", f"https://{name}:{port}/", ca_pem=pem)
            assert side.memory("show", "MEMORY.md").returncode == 0
            assert hub.asked[0].headers["host"] == f"{name}:{port}"


@pytest.mark.parametrize("case", ["another authority", "another name", "no authority"])
def test_a_hub_that_cannot_be_verified_never_sees_the_credential(
    side: Side, home: Path, authority: trustme.CA, case: str
) -> None:
    trusted = {"another authority": trustme.CA(), "another name": authority}.get(case)
    pem = trusted.cert_pem.bytes().decode() if trusted else None
    name = "hub.example" if case == "another name" else "127.0.0.1"
    with tls_hub(_server_context(authority, name), Documents()) as (hub, port):
        write_connection(home / "connections/user.json", f"https://127.0.0.1:{port}", ca_pem=pem)
        done = side.memory("show", "MEMORY.md")
    assert done.returncode == 5
    assert "certificate" in str(error_of(done)["message"]).lower()
    assert hub.asked == []
