"""A disk that is full, and has room again: at a launch, while a session runs, at its end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import HostFailed
from amux.launcher.launch import launch
from amux.launcher.recovery import reconcile, settled
from amux.launcher.request import LaunchRequest
from amux.launcher.session.events import EventKind
from amux.launcher.session.store import SessionStore, State
from amux.launcher.supervisor import Supervisor
from fixtures.hosts import make_host
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from amux.launcher.session.notice import Notice

pytestmark = pytest.mark.root
AMUX = Path(sys.executable).with_name("amux")


class SmallDisk:
    """A file system of 2 MiB that can be filled and emptied again."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._filler = mount / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(
        ("/bin/mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", mount), check=True
    )
    try:
        yield SmallDisk(mount)
    finally:
        subprocess.run(("/bin/umount", "-l", mount), check=True)


@pytest.fixture
def small(disk: SmallDisk) -> Host:
    return make_host(disk.mount, memory=False)


def request(host: Host, *command: str) -> LaunchRequest:
    return LaunchRequest(provider="generic", arguments=command, environment=host.environ)


def test_a_launch_without_room_is_one_typed_error_and_leaves_nothing(
    disk: SmallDisk, small: Host
) -> None:
    with Supervisor(environ=small.environ) as supervisor, supervisor.watch() as watch:
        disk.fill()
        with pytest.raises(HostFailed, match="could not be made: No space left") as raised:
            supervisor.launch(request(small, "true"))
        event = watch.next(0)
        assert event is not None
        assert (event.kind, event.code) == (EventKind.FAILED, "host_failed")
        assert str(raised.value) == event.message
        disk.free()
        assert supervisor.launch(request(small, "true")).wait(SECONDS) is not None


def test_the_command_says_it_in_one_line(disk: SmallDisk, small: Host) -> None:
    disk.fill()
    command = (AMUX, "launch", "generic", "--", "true")
    done = subprocess.run(
        command, env=small.environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 125
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("amux: the launch could not be made: No space left on device")
    for verb in ("list", "prune"):
        listed = subprocess.run(
            (AMUX, "sessions", verb), env=small.environ, capture_output=True, check=False
        )
        assert (listed.returncode, listed.stderr) == (0, b"")


def test_an_end_that_cannot_be_written_is_told_and_settled_once_there_is_room(
    disk: SmallDisk, small: Host
) -> None:
    heard: list[Notice] = []
    run = launch(request(small, "cat"), small, heard=heard.append)
    disk.fill()
    assert run.stop().code == 0
    (notice,) = heard
    assert "how the run ended could not be written down" in notice.warnings[0]
    store = SessionStore(small.home)
    assert settled(store).records[0].state is State.RUNNING  # there is still no room
    disk.free()
    (record,) = settled(store).records
    assert record.state is State.ENDED
    assert "the disk was full" in record.failure
    assert store.unfinished() == ()


def test_a_disk_that_fills_while_a_launch_is_made_leaves_nothing_to_settle(
    disk: SmallDisk, small: Host
) -> None:
    with pytest.raises(HostFailed):
        launch(request(small, "true"), small, began=lambda _: disk.fill())
    disk.free()
    reconcile(SessionStore(small.home))
    assert list((small.home / "sessions").iterdir()) == []
