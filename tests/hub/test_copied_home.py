"""A home that was copied or moved reaches its own Hub and nothing of the one it came from."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.client import HubClient
from amux.hub.connection import connection_path
from amux.hub.errors import HubError
from amux.hub.holder import read_holder
from amux.hub.local import ensure_running, stop_hub
from amux.hub.residence import HOME_HEADER, IDENTITY_FILE, residence, settle
from amux.hub.values import GetRequest, UpsertRequest
from fixtures.hubs import HubHome, new_home
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

AMUX: Final = str(Path(sys.executable).with_name("amux"))
COPIES: Final = {
    "attributes kept": ("cp", "-a"),
    "hard links": ("cp", "-al"),
    "contents": ("cp", "-rL"),
}
# The real Hub, which looks soon whether its home is still there.
WATCHFUL: Final = """
import sys
from amux.hub.server import __main__, process
process.WATCH_SECONDS = 0.01
sys.exit(__main__.main())
"""


@pytest.fixture
def original(hub: HubHome) -> HubHome:
    with hub.client("user") as user:
        user.upsert(UpsertRequest(path="plan.md", content="precious\n", expected_revision="absent"))
    return hub


@pytest.fixture(params=list(COPIES))
def copy(request: pytest.FixtureRequest, original: HubHome, tmp_path: Path) -> Iterator[HubHome]:
    """Copy the whole home while its Hub runs; sockets cannot be copied by their contents."""
    home = tmp_path / "copy" / "home"
    home.parent.mkdir(mode=0o700)
    program = COPIES[request.param]
    subprocess.run([*program, original.home, home], check=False, capture_output=True)
    home.chmod(0o700)
    for folder in ("connections", "identity"):
        for file in (home / folder).glob("*.json"):
            if file.stat().st_nlink == 1:
                file.chmod(0o600)
    made = _at(original, home)
    yield made
    stop_hub(home)


def _at(like: HubHome, home: Path) -> HubHome:
    runs = str(home.parent / "agents" / "runs")
    return replace(
        like,
        home=home,
        environ={**like.environ, "AMUX_HOME": str(home), "AMUX_RUNS": runs},
        process=None,
    )


def _amux(home: HubHome, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AMUX, *arguments],
        env=home.environ,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def _plan(home: HubHome) -> str:
    return (home.home / "memory/global/plan.md").read_text()


def test_no_command_in_a_copy_reaches_the_hub_of_the_original(
    original: HubHome, copy: HubHome
) -> None:
    revision = _amux(original, "memory", "show", "plan.md").stdout.split('"revision":"')[1][:64]
    for arguments in (
        ("memory", "forget", "plan.md", "--expected-revision", revision),
        ("memory", "upsert", "new.md", "--expected-revision", "absent"),
        ("memory", "show", "plan.md"),
    ):
        done = _amux(copy, *arguments, text="theirs\n")
        assert done.returncode not in {0, 3}, done
    assert _plan(original) == "precious\n"
    assert not (original.home / "memory/global/new.md").exists()


def test_a_copy_neither_shows_nor_stops_the_hub_of_the_original(
    original: HubHome, copy: HubHome
) -> None:
    assert _amux(copy, "hub", "status").returncode == 3
    assert _amux(copy, "hub", "stop").stdout == "No Hub runs.\n"
    assert original.process is not None
    assert original.process.poll() is None
    assert _amux(original, "hub", "status").returncode == 0


def test_a_copy_has_a_hub_of_its_own_beside_the_original(original: HubHome, copy: HubHome) -> None:
    assert ensure_running(copy.home, copy.environ).fresh
    done = _amux(copy, "memory", "upsert", "new.md", "--expected-revision", "absent", text="x\n")
    assert done.returncode == 0, done.stderr
    assert (copy.home / "memory/global/new.md").read_text() == "x\n"
    assert not (original.home / "memory/global/new.md").exists()
    assert _amux(original, "memory", "show", "plan.md").returncode == 0
    assert _amux(copy, "hub", "stop").stdout == "The Hub has stopped.\n"
    assert _amux(original, "hub", "status").returncode == 0


def test_a_copy_gets_an_identity_of_its_own_and_a_moved_home_keeps_it(
    hub_home: HubHome, tmp_path: Path
) -> None:
    first = settle(hub_home.home)
    assert settle(hub_home.home) == first
    copied = tmp_path / "copied"
    shutil.copytree(hub_home.home, copied)
    assert residence(copied).identity == ""
    assert settle(copied).identity not in {"", first.identity}
    hub_home.home.rename(tmp_path / "moved")
    assert residence(tmp_path / "moved") == first


@pytest.mark.parametrize("text", ["", "x", "0" * 32 + " 1 2\n", "\0" * 300])
def test_a_damaged_identity_is_made_anew(hub_home: HubHome, text: str) -> None:
    (hub_home.home / IDENTITY_FILE).write_text(text)
    assert len(settle(hub_home.home).identity) == 32


def test_the_hub_of_a_home_that_was_moved_serves_it_where_it_is(
    original: HubHome, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    original.home.rename(moved)
    there = _at(original, moved)
    decoy = new_home(tmp_path / "other")
    decoy.home.rename(original.home)
    done = _amux(there, "memory", "upsert", "new.md", "--expected-revision", "absent", text="x\n")
    assert done.returncode == 0, done.stderr
    assert (moved / "memory/global/new.md").read_text() == "x\n"
    assert not (original.home / "memory").exists()
    assert _amux(there, "hub", "status").returncode == 0
    assert _amux(there, "hub", "stop").stdout == "The Hub has stopped.\n"
    assert ensure_running(moved, there.environ).fresh
    assert _amux(there, "memory", "show", "new.md").returncode == 0
    stop_hub(moved)


def test_a_hub_refuses_a_call_that_is_meant_for_another_home(original: HubHome) -> None:
    def show(home: str) -> int:
        return original.call(
            "POST",
            "/v1/memory/get",
            {"path": "plan.md"},
            token=original.token("user"),
            headers={HOME_HEADER: home},
        ).status

    mine = residence(original.home)
    assert show(mine.text) == 200
    assert show(f"{mine.device}:{mine.inode + 1}:{mine.identity}") == 421
    assert show(f"{mine.device}:{mine.inode}:") == 200
    assert show(f"{mine.device}:{mine.inode}:{'0' * 32}") == 421
    assert show("") == 421


def test_an_address_in_a_home_that_leads_to_another_one_is_not_followed(
    original: HubHome, tmp_path: Path
) -> None:
    other = new_home(tmp_path / "other")
    path = connection_path(other.home, "user")
    fields = json.loads(path.read_text())
    fields |= {"url": f"unix:{original.private}", "token": original.token("user")}
    path.write_text(json.dumps(fields))
    assert _amux(other, "memory", "show", "plan.md").returncode == 5
    with HubClient.from_file(path) as user, pytest.raises(HubError, match=str(other.home)):
        user.get(GetRequest(path="plan.md"))


def test_two_homes_with_one_runs_root_do_not_take_each_others_socket(
    original: HubHome, tmp_path: Path
) -> None:
    other = new_home(tmp_path / "other")
    other.environ["AMUX_RUNS"] = original.environ["AMUX_RUNS"]
    done = _amux(other, "hub", "serve")
    assert done.returncode == 78
    assert "AMUX_RUNS" in done.stderr
    with original.client("runtime") as runtime:
        grant = runtime.open_launch("mine")
    with original.agent(grant.token, grant.binding) as agent:
        assert agent.get(GetRequest(path="plan.md")).exists


def test_a_hub_ends_when_its_home_is_deleted(hub_home: HubHome) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WATCHFUL, "--ready-fd", str(write_end)],
        env=hub_home.environ,
        pass_fds=(write_end,),
        cwd="/",
    )
    os.close(write_end)
    with process, os.fdopen(read_end, "rb") as said:
        assert select.select([said], [], [], SECONDS)[0]
        assert said.read() == b"ready"
        shutil.rmtree(hub_home.home)
        assert process.wait(SECONDS) == 0
    assert read_holder(hub_home.home) is None
