"""Leases and the clocks: sleep, a clock that is set, restarts and reboots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.errors import Forbidden, InvalidRequest, Unauthenticated
from amux.hub.values import GetRequest

if TYPE_CHECKING:
    from pathlib import Path

    from amux.hub.client import LaunchGrant
    from fixtures.hubs import HubHome

DAY: Final = 86_400.0
# The real Hub, whose two clocks are moved by a file, and whose boot is named there.
CLOCKS: Final = """
import functools, json, pathlib, sys, time
from amux.hub.identity import launches
from amux.hub.server import __main__, process
moved = pathlib.Path(sys.argv.pop())
def at(name, real):
    return lambda: real() + json.loads(moved.read_text())[name]
boot = moved.with_name("boot")
boot.write_text(str(json.loads(moved.read_text())["boot"]))
launches.BOOT_ID = boot
process.open_identity = functools.partial(
    process.open_identity, clock=at("wall", time.time), awake=at("awake", time.monotonic)
)
sys.exit(__main__.main())
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A Hub on a machine whose clocks can be moved."""

    hub: HubHome
    moved: Path

    def move(self, *, wall: float = 0.0, awake: float = 0.0, boot: int = 1) -> None:
        """Move the clocks away from this machine's own."""
        new = self.moved.with_name("new")
        new.write_text(json.dumps({"wall": wall, "awake": awake, "boot": boot}))
        new.rename(self.moved)

    def start(self) -> None:
        """Start the Hub, after ending an older one."""
        self.hub.kill()
        told, tell = os.pipe()
        self.hub.process = subprocess.Popen(
            [sys.executable, "-P", "-c", CLOCKS, "--ready-fd", str(tell), str(self.moved)],
            env=self.hub.environ,
            pass_fds=(tell,),
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        os.close(tell)
        with os.fdopen(told, "rb") as ready:
            assert ready.read() == b"ready"

    def reads(self, grant: LaunchGrant) -> bool:
        """Say whether the launch's credential is taken."""
        try:
            with self.hub.agent(grant.token, grant.binding) as agent:
                agent.get(GetRequest(path="MEMORY.md"))
        except Unauthenticated:
            return False
        return True


@pytest.fixture
def machine(hub_home: HubHome, tmp_path: Path) -> Machine:
    hub_home.set("memory.enabled", "true")
    made = Machine(hub_home, tmp_path / "moved")
    made.move()
    made.start()
    return made


def test_a_weekend_asleep_ends_no_lease(machine: Machine) -> None:
    with machine.hub.client("runtime") as runtime:
        grant = runtime.open_launch("run")
        machine.move(wall=3 * DAY)
        assert machine.reads(grant)
        assert runtime.renew_launch("run").expires_at > grant.expires_at + 2 * DAY
        machine.start()
        assert machine.reads(grant)


@pytest.mark.parametrize("wall", [400 * DAY, -400 * DAY], ids=["forward", "back"])
def test_a_clock_that_is_set_right_ends_no_lease(machine: Machine, wall: float) -> None:
    machine.move(wall=wall)
    with machine.hub.client("runtime") as runtime:
        grant = runtime.open_launch("run")
        machine.move()
        assert machine.reads(grant)
        machine.start()
        assert machine.reads(grant)
        runtime.renew_launch("run")


def test_a_day_awake_ends_a_lease_and_the_run_can_prove_itself(machine: Machine) -> None:
    with machine.hub.client("runtime") as runtime:
        grant = runtime.open_launch("run")
        machine.move(wall=DAY + 1, awake=DAY + 1)
        assert not machine.reads(grant)
        with pytest.raises(Forbidden):
            runtime.renew_launch("run")
        lease = runtime.renew_launch("run", token=grant.token, binding=grant.binding)
        assert lease.reopened
        assert machine.reads(grant)
        again = runtime.renew_launch("run", token=grant.token, binding=grant.binding)
        assert not again.reopened


def test_after_a_reboot_the_rest_of_a_lease_is_that_of_the_wall_clock(machine: Machine) -> None:
    with machine.hub.client("runtime") as runtime:
        grant = runtime.open_launch("run")
        machine.move(wall=DAY / 2, awake=-1000.0, boot=2)
        machine.start()
        assert machine.reads(grant)
        machine.move(wall=DAY + 1, awake=-1000.0 + DAY / 2 + 1, boot=2)
        assert not machine.reads(grant)
        machine.move(wall=DAY + 1, awake=-1000.0, boot=3)
        machine.start()
        assert not machine.reads(grant)


def test_a_lost_lease_is_opened_again_for_the_runtime_that_shows_its_credential(
    machine: Machine,
) -> None:
    with machine.hub.client("runtime") as runtime:
        grant = runtime.open_launch("run")
        proof = {"token": grant.token, "binding": grant.binding, "principal": grant.principal}
        for file in (machine.hub.home / "identity" / "launches").iterdir():
            file.unlink()
        machine.start()
        assert not machine.reads(grant)
        assert runtime.renew_launch("run", **proof).reopened
        assert machine.reads(grant)
        with pytest.raises(Forbidden, match="another launch"):
            runtime.renew_launch("other", **proof)
        newer = runtime.open_launch("run")
        with pytest.raises(Forbidden, match="another credential"):
            runtime.renew_launch("run", **proof)
        assert machine.reads(newer)
        with pytest.raises(InvalidRequest):
            runtime.renew_launch("run", token=machine.hub.token("user"), binding="global")
