"""A Hub behind a service manager's socket: handed over, waited for, never fought with."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.holder import read_holder
from amux.hub.local import answers, ensure_running, hub_status, stop_hub
from amux.hub.unixsocket import is_listened_at
from fixtures.activating import BECOME, listen, managed, start_handed
from fixtures.hubs import SERVER, HubHome
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.hub.holder import Holder

CALLERS: Final = 8
TAKE: Final = """
import os
from amux.hub.server.activation import take_handed
handed = take_handed(os.environ)
again = take_handed(os.environ)
left = sorted(name for name in os.environ if name.startswith("LISTEN"))
print(handed.fileno(), os.get_inheritable(3), left, again)
"""


def test_a_hub_serves_on_the_socket_that_it_is_handed_and_leaves_it_in_place(
    on_demand: HubHome,
) -> None:
    with listen(on_demand) as bound:
        on_demand.private.chmod(0o666)
        file = on_demand.private.lstat()
        for _ in range(2):
            process = start_handed(on_demand, bound.fileno())
            holder = appeared(on_demand)
            assert (holder.pid, holder.placed, holder.on_demand) == (process.pid, "socket", False)
            with on_demand.client("user") as user:
                assert user.health().enabled is True
            assert stat.S_IMODE(on_demand.private.lstat().st_mode) == 0o600
            assert on_demand.agents.is_socket()
            process.terminate()
            assert process.wait(SECONDS) == 0
            assert os.path.samestat(file, on_demand.private.lstat())
            assert not on_demand.agents.exists()


def test_what_says_that_a_socket_is_handed_over_is_taken_out_of_the_environment(
    on_demand: HubHome,
) -> None:
    with listen(on_demand) as bound:
        taken = subprocess.run(
            [sys.executable, "-c", BECOME, str(bound.fileno()), "1", sys.executable, "-c", TAKE],
            pass_fds=(bound.fileno(),),
            capture_output=True,
            text=True,
            check=True,
        )
    assert taken.stdout == "3 False [] None\n"


@pytest.mark.parametrize(
    ("handed", "count", "said"),
    [
        ("hub.sock", "2", "handed over 2 sockets"),
        ("hub.sock", "", "handed over no sockets"),
        ("elsewhere", "1", "which is not this home's hub.sock"),
        ("mute", "1", "does not listen"),
        ("inet", "1", "no Unix stream socket"),
        ("file", "1", "no socket"),
    ],
)
def test_another_socket_than_this_homes_is_refused(
    on_demand: HubHome, tmp_path: Path, handed: str, count: str, said: str
) -> None:
    with socket.socket(
        socket.AF_INET if handed == "inet" else socket.AF_UNIX, socket.SOCK_STREAM
    ) as bound:
        if handed != "inet":
            bound.bind(str(on_demand.private if handed == "hub.sock" else tmp_path / "other.sock"))
        if handed != "mute":
            bound.listen()
        with (tmp_path / "file").open("w") as file:
            number = file.fileno() if handed == "file" else bound.fileno()
            process = start_handed(on_demand, number, count=count)
            assert process.wait(SECONDS) == 78
    assert said in on_demand.log.read_text(encoding="utf-8")
    assert read_holder(on_demand.home) is None


def test_of_many_callers_each_gets_the_hub_that_the_manager_starts(on_demand: HubHome) -> None:
    found = set[tuple[int, bool]]()
    wrong: list[BaseException] = []

    def call() -> None:
        try:
            started = ensure_running(on_demand.home, on_demand.environ, seconds=SECONDS)
            found.add((started.holder.pid if started.holder else 0, started.fresh))
        except BaseException as error:  # noqa: BLE001  # shown below, whatever it is
            wrong.append(error)

    with managed(on_demand) as manager:
        callers = [threading.Thread(target=call) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert wrong == []
        assert found == {(manager.started.get(timeout=SECONDS), False)}
        assert manager.started.empty()
        with on_demand.client("user") as user:
            assert user.health().enabled is True


def test_a_killed_hub_of_the_managers_is_started_by_the_next_call(on_demand: HubHome) -> None:
    with managed(on_demand) as manager:
        with on_demand.client("user") as user:
            user.health()
        first = manager.started.get(timeout=SECONDS)
        os.kill(first, signal.SIGKILL)
        with on_demand.client("user") as user:
            assert user.health().enabled is True
        holder = read_holder(on_demand.home)
        assert holder is not None
        assert holder.pid == manager.started.get(timeout=SECONDS) != first


def test_a_hub_that_a_launch_started_gives_way_to_the_managers(on_demand: HubHome) -> None:
    old = ensure_running(on_demand.home, on_demand.environ).holder
    assert old is not None
    with managed(on_demand) as manager:
        with on_demand.client("user") as user:
            assert user.health().enabled is True
        holder = appeared(on_demand)
        assert holder.pid == manager.started.get(timeout=SECONDS) != old.pid
        # The one that ended did not take the manager's socket along.
        assert is_listened_at(on_demand.private)
        assert answers(on_demand.home)


def test_nobody_takes_the_managers_place_and_without_one_a_launch_starts_the_hub(
    on_demand: HubHome,
) -> None:
    with listen(on_demand) as bound:
        bound.setblocking(False)  # noqa: FBT003  # the socket's own signature
        assert hub_status(on_demand.home).activated
        file = on_demand.private.lstat()
        by_hand = subprocess.run(
            SERVER,
            env=on_demand.environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert by_hand.returncode == 78
        assert "a service manager listens at" in by_hand.stderr
        assert os.path.samestat(file, on_demand.private.lstat())
        with pytest.raises(BlockingIOError):
            bound.accept()  # nobody called, so that the manager would have started nothing
    assert on_demand.private.is_socket()
    assert not hub_status(on_demand.home).activated
    assert ensure_running(on_demand.home, on_demand.environ).fresh


def test_a_stop_says_that_the_next_call_starts_the_hub_again(on_demand: HubHome) -> None:
    def stop() -> str:
        return subprocess.run(
            [sys.executable, "-P", "-m", "amux.launcher.command", "hub", "stop"],
            env=on_demand.environ,
            capture_output=True,
            text=True,
            check=True,
        ).stderr

    with managed(on_demand):
        ensure_running(on_demand.home, on_demand.environ)
        assert "systemctl --user stop amux-hub-" in stop()
    assert stop() == ""


def test_systemds_own_activation_starts_the_hub_where_there_is_one(on_demand: HubHome) -> None:
    tool = shutil.which("systemd-socket-activate")
    program = SERVER
    words = [f"--setenv={name}" for name in on_demand.environ]
    # Where there is none, what it does is done by hand: the same has to come of it.
    command = [tool or "", f"--listen={on_demand.private}", *words, *program]
    if tool is None:
        with listen(on_demand) as bound:
            process = start_handed(on_demand, bound.fileno())
    else:
        process = subprocess.Popen(command, env=on_demand.environ, stderr=subprocess.DEVNULL)
        until(lambda: is_listened_at(on_demand.private))
    with on_demand.client("user") as user:
        assert user.health().enabled is True
    holder = read_holder(on_demand.home)
    assert holder is not None
    assert (holder.pid, holder.placed) == (process.pid, "socket")
    assert stop_hub(on_demand.home)
    assert process.wait(SECONDS) == 0


def appeared(on_demand: HubHome) -> Holder:
    """Return the Hub once one answers."""
    found: list[Holder] = []

    def look() -> bool:
        holder = read_holder(on_demand.home)
        if holder is not None and answers(on_demand.home):
            found.append(holder)
        return bool(found)

    until(look)
    return found[0]


def until(look: object) -> None:
    """Look again until it is so, or the deadline has passed."""
    assert callable(look)
    deadline = time.monotonic() + SECONDS
    while not look():
        assert time.monotonic() < deadline
