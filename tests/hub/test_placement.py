"""Where a Hub that is started on demand lives: outside the control group of who started it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub import cgroup, local, placement
from amux.hub.holder import read_holder
from amux.hub.local import ensure_running, stop_hub
from amux.hub.placement import SENTENCES, Placed, find_manager
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures.hubs import HubHome

LAUNCH: Final = """
import os, sys
from amux.launcher.host import this_host
from amux.launcher.memory.hub import open_hub
from amux.launcher.request import LaunchRequest
for group in sys.argv[1:]:
    with open(group + "/cgroup.procs", "w") as file:
        file.write("0")
host = this_host(os.environ)
warned = [], []
for words in warned:
    open_hub(LaunchRequest(provider="generic"), host, words.append).close()
print(len(warned[0]), len(warned[1]), flush=True)
sys.stdin.read()
"""
# Writes down how it was called, then does what it was asked to run.
MANAGER: Final = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done >> "$0.asked"
env > "$0.environ"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """The control groups of something that starts a Hub and is then ended with all in it."""

    folders: tuple[str, ...]

    def start(self, hub: HubHome) -> subprocess.Popen[str]:
        """Start what starts the Hub, and return it once the Hub answers."""
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *self.folders],
            env=hub.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def members(self) -> set[int]:
        """Return the processes of all its groups."""
        found = set[int]()
        for folder in self.folders:
            text = Path(folder, "cgroup.procs").read_text(encoding="ascii")
            found |= {int(word) for word in text.split()}
        return found


@contextlib.contextmanager
def unit(*parents: str) -> Iterator[Unit]:
    """Make a group below each of the parents that lets this account make one."""
    name = f"unit-{secrets.token_hex(6)}"
    made = []
    for parent in parents:
        with contextlib.suppress(OSError):
            os.mkdir(f"{parent}/{name}")  # noqa: PTH102  # a folder of the kernel's
            made.append(f"{parent}/{name}")
    try:
        yield Unit(tuple(made))
    finally:
        for folder in made:
            os.rmdir(folder)  # noqa: PTH106  # as above


def own_groups() -> tuple[str, ...]:
    """Return this process's group of version 2, where the kernel has one."""
    return tuple(filter(None, [cgroup.own_folder()]))


def old_groups() -> tuple[str, ...]:
    """Return the hierarchy of version 1 that counts processes, where the kernel has it."""
    return tuple(path for path in ("/sys/fs/cgroup/pids",) if Path(path).is_dir())


def test_a_hub_outlives_the_control_group_of_the_launch_that_started_it(
    on_demand: HubHome,
) -> None:
    with unit(*own_groups()) as group, group.start(on_demand) as launch:
        assert launch.stdout is not None
        warned = launch.stdout.readline()
        holder = read_holder(on_demand.home)
        assert holder is not None
        outside = holder.pid not in group.members()
        if group.folders:
            # Whoever may make a group may make one beside it, or a manager makes a scope.
            assert holder.placed in {Placed.SCOPE, Placed.GROUP, Placed.SHARED}
            assert outside
            assert launch.pid in group.members()
        shared = holder.placed == Placed.SHARED
        assert warned == f"{int(shared)} 0\n"
        for pid in group.members() or {launch.pid}:
            os.kill(pid, 9)
        assert launch.wait(SECONDS) == -9
    with on_demand.client("user") as user:
        assert user.health().enabled is True
    assert read_holder(on_demand.home) == holder


def test_a_hub_that_cannot_leave_its_launchs_control_group_says_so(on_demand: HubHome) -> None:
    with unit(*old_groups()) as group, group.start(on_demand) as launch:
        assert launch.stdout is not None
        warned = launch.stdout.readline()
        holder = read_holder(on_demand.home)
        assert holder is not None
        inside = holder.pid in group.members()
        assert warned == f"{int(holder.placed == Placed.SHARED)} 0\n"
        if inside:
            assert holder.placed == Placed.SHARED
        said = subprocess.run(
            [sys.executable, "-P", "-m", "amux.launcher.command", "hub", "status"],
            env=on_demand.environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"started   {SENTENCES[Placed(holder.placed)]}" in said
        log = (on_demand.home / "logs" / "hub.log").read_text(encoding="utf-8")
        assert (SENTENCES[Placed.SHARED] in log) == (holder.placed == Placed.SHARED)
        assert f'"placed": "{holder.placed}"' in log
        stop_hub(on_demand.home)
        launch.communicate(timeout=SECONDS)


def test_the_group_that_was_made_for_a_hub_goes_with_it(on_demand: HubHome) -> None:
    with unit(*own_groups()) as group, group.start(on_demand) as launch:
        assert launch.stdout is not None
        launch.stdout.readline()
        holder = read_holder(on_demand.home)
        assert holder is not None
        assert bool(holder.group) == (
            bool(group.folders) and holder.placed in {Placed.GROUP, Placed.SHARED}
        )
        if holder.group:
            pids = Path(holder.group, "cgroup.procs").read_text(encoding="ascii").split()
            assert pids == [str(holder.pid)]
        stop_hub(on_demand.home)
        assert not holder.group or not Path(holder.group).exists()
        launch.communicate(timeout=SECONDS)


def test_a_hub_sweeps_the_groups_that_killed_hubs_left(on_demand: HubHome) -> None:
    with unit(*own_groups()) as group:
        left = [f"{parent}/amux-hub-0123456789ab" for parent in own_groups() if group.folders]
        for folder in left:
            os.mkdir(folder)  # noqa: PTH102  # a folder of the kernel's
        with group.start(on_demand) as launch:
            assert launch.stdout is not None
            launch.stdout.readline()
            holder = read_holder(on_demand.home)
            assert holder is not None
            # Swept beside the Hub's own, where it has one.
            swept = [path for path in left if Path(path).parent == Path(holder.group).parent]
            assert not any(Path(path).exists() for path in swept)
            stop_hub(on_demand.home)
            launch.communicate(timeout=SECONDS)
        for folder in set(left).difference(swept):
            placement.remove(folder)


def test_a_hub_is_started_in_a_scope_where_a_manager_makes_one(
    on_demand: HubHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = manager(tmp_path, MANAGER)
    path = f"{tmp_path}:/usr/bin:/bin"
    environ = {**on_demand.environ, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
    monkeypatch.setattr(
        local, "find_manager", lambda names: find_manager(names, booted=tmp_path, path=path)
    )
    holder = ensure_running(on_demand.home, environ).holder
    assert holder is not None
    assert (holder.placed, holder.group) == (Placed.SCOPE, "")
    asked = program.with_suffix(".asked").read_text(encoding="utf-8").split("\n")
    whose = "--system" if os.geteuid() == 0 else "--user"
    words = [whose, "--scope", "--collect", "--quiet", "--no-ask-password"]
    begin = [*words, "--description=amux Hub", "--"]
    # Asked first with a command that does nothing.
    assert asked[: len(begin) + 1] == [*begin, "true"]
    assert asked[len(begin) + 1 :][: len(begin)] == begin
    told = program.with_suffix(".environ").read_text(encoding="utf-8")
    assert ("DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere" in told) == (os.geteuid() != 0)
    names = {
        item.partition(b"=")[0]
        for item in Path(f"/proc/{holder.pid}/environ").read_bytes().split(b"\0")
    }
    assert names.isdisjoint({b"DBUS_SESSION_BUS_ADDRESS", b"XDG_RUNTIME_DIR"})


def test_a_manager_that_refuses_or_hangs_or_is_not_there_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}:/usr/bin:/bin"
    manager(tmp_path, "#!/bin/sh\nexit 1\n")
    assert find_manager({}, booted=tmp_path, path=path) is None
    manager(tmp_path, MANAGER)
    assert find_manager({}, booted=tmp_path, path=path) is not None
    assert find_manager({}, booted=tmp_path / "not booted", path=path) is None
    assert find_manager({}, booted=tmp_path, path=str(tmp_path / "empty")) is None
    monkeypatch.setattr(placement, "ASK_SECONDS", 0.2)
    manager(tmp_path, "#!/bin/sh\nexec sleep 600\n")
    assert find_manager({}, booted=tmp_path, path=path) is None


@pytest.mark.parametrize(
    ("paths", "ends"),
    [
        ({"": "/"}, False),
        ({"": "/system.slice/job.service"}, True),
        ({"": "/", "memory": "/box", "cpu,cpuacct": "/box"}, False),
        ({"": "/", "pids": "/box"}, True),
        ({"": "/", "name=systemd": "/user.slice"}, True),
    ],
)
def test_a_group_that_only_counts_ends_nothing(paths: dict[str, str], *, ends: bool) -> None:
    assert bool(cgroup.ending_paths(paths)) == ends


def test_the_highest_group_that_a_container_sees_is_not_one_that_something_in_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tops = [("/docker/1", {"rw", "pids"}), ("/docker/1", {""})]
    monkeypatch.setattr(cgroup, "_tops", lambda: tops)
    assert cgroup.ending_paths({"": "/docker/1", "pids": "/docker/1"}) == set()
    inner = {"": "/docker/1/job", "pids": "/docker/1/job"}
    assert cgroup.ending_paths(inner) == set(inner.items())
    assert cgroup.ending_paths({"freezer": "/docker/1"}) == {("freezer", "/docker/1")}


def manager(folder: Path, script: str) -> Path:
    """Put a `systemd-run` into the folder."""
    program = folder / "systemd-run"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    return program
