"""The socket in a run's folder: whose it is, who can send to it, and who the kernel names."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path
from socket import AF_UNIX, SOCK_DGRAM
from typing import TYPE_CHECKING

import pytest

from amux.materializer import runs, trial, witness
from amux.materializer.agentside.transport import UnixAddress
from amux.materializer.errors import NotPlaced
from amux.materializer.values import PlannedFile
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity, RunPaths
    from fixtures.accounts import Account

FILE = PlannedFile(name="connection.json", content=b"{}")
SEND = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
    "s.sendto(b'hello', sys.argv[1])"
)


def placed(root: Path, identity: Identity | None = None) -> RunPaths:
    paths = runs.allocate(root)
    runs.apply(paths, (FILE,), identity)
    return paths


def listening(paths: RunPaths, identity: Identity | None = None) -> socket.socket:
    heard = witness.listen(paths, identity)
    assert heard is not None
    return heard


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def send(path: Path, data: bytes, files: list[int] | None = None) -> None:
    with UnixAddress(str(path)) as address, socket.socket(AF_UNIX, SOCK_DGRAM) as channel:
        channel.connect(address)
        socket.send_fds(channel, [data], files or [])


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_the_socket_is_its_accounts_alone_under_any_umask(tmp_path: Path, mask: int) -> None:
    paths = placed(tmp_path / "runs")
    before = os.umask(mask)
    try:
        heard = listening(paths)
    finally:
        os.umask(before)
    with heard:
        assert stat.S_IMODE(paths.witness.stat().st_mode) == 0o600
        send(paths.witness, b"hello")
        assert witness.receive(heard) == (os.getuid(), b"hello")
    assert runs.remove(paths)


def test_a_run_in_a_deep_folder_has_a_socket_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    paths = placed(deep / "runs")
    with listening(paths) as heard:
        send(paths.witness, b"hello")
        assert witness.receive(heard) == (os.getuid(), b"hello")
    runs.remove(paths)


def test_a_run_that_is_not_there_and_a_name_that_is_taken_give_no_socket(tmp_path: Path) -> None:
    assert witness.listen(runs.allocate(tmp_path / "runs"), None) is None
    paths = placed(tmp_path / "runs")
    with listening(paths):
        assert witness.listen(paths, None) is None
    runs.remove(paths)


def test_no_planned_file_takes_the_sockets_name(tmp_path: Path) -> None:
    taken = PlannedFile(name="witness.sock", content=b"")
    with pytest.raises(NotPlaced, match=r"'witness\.sock' cannot be the name"):
        runs.apply(runs.allocate(tmp_path / "runs"), (taken,), None)


def test_a_socket_that_is_shut_gives_what_was_sent_before_and_wakes_who_waits(
    tmp_path: Path,
) -> None:
    paths = placed(tmp_path / "runs")
    with listening(paths) as heard:
        got: list[tuple[int, bytes] | None] = []
        send(paths.witness, b"last words")

        def hear() -> None:
            while not got or got[-1] is not None:
                got.append(witness.receive(heard))

        thread = threading.Thread(target=hear)
        heard.shutdown(socket.SHUT_RD)
        thread.start()
        thread.join(SECONDS)
    assert got == [(os.getuid(), b"last words"), None]
    runs.remove(paths)


def test_descriptors_that_are_sent_along_and_what_is_too_long_are_dropped(tmp_path: Path) -> None:
    paths = placed(tmp_path / "runs")
    with listening(paths) as heard:
        before = open_files()
        send(paths.witness, b"with files", [0, 0, 0])
        send(paths.witness, b"x" * (witness.MESSAGE_BYTES + 1))
        assert witness.receive(heard) == (os.getuid(), b"with files")
        assert witness.receive(heard) == (os.getuid(), b"")
        assert open_files() == before
    runs.remove(paths)


@pytest.mark.root
def test_only_the_target_and_root_can_send_and_the_kernel_says_who_it_was(
    root: Path, target: Identity, bob: Account, target_python: str
) -> None:
    from amux.materializer.identity import resolve  # noqa: PLC0415  # as root only

    paths = placed(root, target)
    command = (target_python, "-I", "-c", SEND, str(paths.witness))
    with listening(paths, target) as heard:
        info = paths.witness.stat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (target.uid, 0o600)
        refused = trial.run(command, identity=resolve(bob.name), environment={})
        assert b"PermissionError" in refused.stderr
        assert trial.run(command, identity=target, environment={}).status == 0
        assert witness.receive(heard) == (target.uid, b"hello")
        send(paths.witness, b"root")
        assert witness.receive(heard) == (0, b"root")
    assert runs.remove(paths)


@pytest.mark.root
def test_the_target_can_put_nothing_in_the_sockets_place(
    root: Path, target: Identity, as_target: Callable[[str], Trial]
) -> None:
    paths = placed(root, target)
    with listening(paths, target):
        as_target(f"rm -f {paths.witness}; mv {paths.work} {paths.witness}")
        assert stat.S_ISSOCK(paths.witness.lstat().st_mode)
    assert runs.remove(paths)
