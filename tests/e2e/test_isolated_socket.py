"""The control socket beside an agent's screen lies in the target's own folder."""

from __future__ import annotations

import secrets
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from amux.launcher.channel.websocket import connect
from amux.launcher.errors import ChannelError
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.materializer import identity, runs
from fixtures import accounts
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fixtures.accounts import Account

pytestmark = pytest.mark.root


@pytest.fixture(name="alice")
def _alice() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    with accounts.reachable_folder() as folder:
        yield folder


@pytest.mark.parametrize("trap", ["link", "folder", "file"])
def test_the_service_speaks_to_no_socket_but_the_agents_own(
    place: Path, alice: Account, trap: str
) -> None:
    heard: list[bytes] = []
    private = place / "private"
    private.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(private / "root.sock"))
        server.listen()
        listener = threading.Thread(target=_hear, args=(server, heard))
        listener.start()
        paths = runs.allocate(place / "runs")
        target = identity.resolve(alice.name)
        runs.apply(paths, (), target)
        path = f"{paths.work}/server.sock"
        make = {
            "link": f"ln -s {private}/root.sock {path}",
            "folder": f"mkdir {path}",
            "file": f"touch {path}",
        }[trap]
        process = spawn(
            SpawnRequest(
                argv=("/bin/sh", "-c", f"{make}; echo made; exec sleep 100"),
                environment={"PATH": "/usr/bin:/bin"},
                cwd="/",
                marker=secrets.token_hex(16),
                identity=target,
            )
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"made\n"
            with pytest.raises(ChannelError, match=r"leads to a server of uid 0|is not one|listen"):
                connect(process, path, deadline=1.0)
        finally:
            process.stop(close=0)
            assert process.stdout is not None
            process.stdout.close()
            assert runs.remove(paths)
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(private / "root.sock"))
            last.sendall(b"end")
        listener.join()
    assert b"".join(heard) == b"end"


def _hear(server: socket.socket, heard: list[bytes]) -> None:
    while b"end" not in heard:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(SECONDS)
            heard.append(connection.recv(4096))
