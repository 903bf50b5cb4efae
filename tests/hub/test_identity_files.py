"""Principals, credentials and leases as files: what is stored, refused, and kept apart."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amux.hub.enrolment import account_principal, enrol_local
from amux.hub.errors import HomeRefused, IdentityRefused, StorageFailed, Unauthenticated
from amux.hub.home import agent_socket, home_path, open_home, runs_root
from amux.hub.identity import (
    LEASE_SECONDS,
    Launch,
    Registry,
    is_principal_id,
    launches,
    open_identity,
)
from amux.hub.identity import token as tokens
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(tmp_path: Path, clock: Clock) -> Registry:
    found = open_identity(tmp_path, clock=clock, awake=clock)
    found.launches.load()
    return found


def test_a_credential_is_stored_only_as_its_hash_in_files_of_the_owner(
    registry: Registry, tmp_path: Path, clock: Clock
) -> None:
    registry.principals.add("ann")
    user = registry.credentials.issue("user", principal="ann")
    runtime = registry.credentials.issue("runtime", allowed=None)
    agent = _lease(registry, clock, runtime.id)
    stored = b""
    for path in (tmp_path / "identity").rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            stored += path.read_bytes()
        else:
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for token in (user, runtime, agent):
        assert token.secret.encode() not in stored
        assert token.digest.encode() in stored
        assert token.secret not in repr(token)
        assert registry.authenticate(token.text).kind == token.kind


@given(st.text() | st.binary().map(lambda data: "amux_user_" + data.hex()))
def test_a_text_that_is_no_token_is_none(text: str) -> None:
    assert tokens.parse(text) is None


def test_every_change_of_a_token_makes_it_worthless(registry: Registry) -> None:
    registry.principals.add("ann")
    good = registry.credentials.issue("user", principal="ann").text
    for place in range(len(good)):
        bad = good[:place] + ("A" if good[place] != "A" else "B") + good[place + 1 :]
        with pytest.raises(Unauthenticated):
            registry.authenticate(bad)
    with pytest.raises(Unauthenticated):
        registry.authenticate(good.replace("amux_user", "amux_admin"))
    with pytest.raises(Unauthenticated):
        registry.authenticate(good + "A")


def test_a_credential_ends_at_its_time(registry: Registry, clock: Clock) -> None:
    registry.principals.add("ann")
    token = registry.credentials.issue("user", principal="ann", expires=int(clock.now) + 60)
    assert registry.authenticate(token.text).principal == "ann"
    clock.now += 60
    with pytest.raises(Unauthenticated):
        registry.authenticate(token.text)


def test_a_lease_ends_after_a_day_and_is_swept(registry: Registry, clock: Clock) -> None:
    runtime = registry.credentials.issue("runtime", allowed=None)
    agent = _lease(registry, clock, runtime.id)
    clock.now += LEASE_SECONDS - 1
    assert registry.authenticate(agent.text).kind == "agent"
    clock.now += 1
    with pytest.raises(Unauthenticated):
        registry.authenticate(agent.text)
    assert registry.launches.sweep() == 1
    assert registry.launches.find("launch") is None


def test_a_lease_whose_file_cannot_be_deleted_is_still_there_to_be_ended(
    registry: Registry, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = registry.credentials.issue("runtime", allowed=None)
    agent = _lease(registry, clock, runtime.id)

    def refuse(_folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(launches, "sync_folder", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            registry.launches.end("launch")
    assert registry.authenticate(agent.text).kind == "agent"
    assert registry.launches.end("launch") is True
    assert registry.launches.end("launch") is False
    again = open_identity(tmp_path, clock=clock, awake=clock)
    again.launches.load()
    assert again.launches.find("launch") is None


def test_leases_are_read_again_and_damaged_ones_harm_no_other(
    registry: Registry, tmp_path: Path, clock: Clock
) -> None:
    runtime = registry.credentials.issue("runtime", allowed=None)
    agent = _lease(registry, clock, runtime.id)
    _lease(registry, clock, runtime.id, name="late", seconds=5)
    folder = tmp_path / "identity" / "launches"
    (folder / "cut.json").write_bytes(b'{"schema": 1, "launch": "cu')
    (folder / "odd.json").write_bytes(b'{"schema": 1, "launch": 7}')
    (folder / ".half.tmp").write_bytes(b"")
    clock.now += 10
    again = open_identity(tmp_path, clock=clock, awake=clock)
    assert again.launches.load() == 2
    assert again.authenticate(agent.text).launch is not None
    assert again.launches.find("late") is None
    assert len(list(folder.iterdir())) == 3


def test_the_launches_of_a_runtime_end_with_its_credential(
    registry: Registry, clock: Clock
) -> None:
    registry.principals.add("ann")
    runtime = registry.credentials.issue("runtime", allowed=("ann",))
    agent = _lease(registry, clock, runtime.id)
    assert registry.authenticate(agent.text).principal == "ann"
    registry.credentials.revoke(runtime.id)
    with pytest.raises(Unauthenticated):
        registry.authenticate(agent.text)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"schema": 9, "credentials": {}}', b'{"schema": 1}']
)
def test_a_damaged_identity_file_lets_nobody_in_and_says_so(
    registry: Registry, tmp_path: Path, damage: bytes
) -> None:
    registry.principals.add("ann")
    token = registry.credentials.issue("user", principal="ann")
    assert registry.authenticate(token.text).kind == "user"
    path = tmp_path / "identity" / "credentials.json"
    path.write_bytes(damage)
    with pytest.raises(StorageFailed):
        registry.authenticate(token.text)
    with pytest.raises(IdentityRefused, match=r"credentials\.json"):
        registry.credentials.issue("user", principal="ann")
    assert path.read_bytes() == damage


def test_an_identity_file_that_others_can_write_is_refused(
    registry: Registry, tmp_path: Path
) -> None:
    registry.principals.add("ann")
    token = registry.credentials.issue("user", principal="ann")
    (tmp_path / "identity" / "credentials.json").chmod(0o666)
    with pytest.raises(StorageFailed):
        registry.authenticate(token.text)


@pytest.mark.parametrize(
    "name", ["", ".ann", "-ann", "ann/bob", "ann bob", "änn", "a" * 129, "ann\n", "../ann", "@ann"]
)
def test_a_bad_principal_id_is_refused(registry: Registry, name: str) -> None:
    assert not is_principal_id(name)
    with pytest.raises(IdentityRefused, match="not a Principal id"):
        registry.principals.add(name)


def test_no_two_principals_share_a_name(registry: Registry) -> None:
    registry.principals.add("ann", ("Ann Ä", "@ann"))
    registry.principals.add("bob")
    for name, aliases in (("ann", ()), ("carl", ("@ann",)), ("carl", ("bob",))):
        with pytest.raises(IdentityRefused, match="already"):
            registry.principals.add(name, aliases)
    for alias in ("ann", "Ann Ä"):
        with pytest.raises(IdentityRefused, match="already"):
            registry.principals.add_alias("bob", alias)
    assert registry.principals.add_alias("ann", "@ann").aliases == ("Ann Ä", "@ann")
    known = registry.principals.current()
    assert set(known.by_id) == {"ann", "bob"}
    found = known.resolve("Ann Ä")
    assert found is not None
    assert found.id == "ann"
    assert known.resolve("ANN") is None


@pytest.mark.parametrize("alias", ["", "a\nb", "\x00", "a\u200bb", "x" * 1025])
def test_an_alias_that_cannot_be_shown_is_refused(registry: Registry, alias: str) -> None:
    registry.principals.add("ann")
    with pytest.raises(IdentityRefused, match="not an alias"):
        registry.principals.add_alias("ann", alias)


def test_writers_in_many_processes_lose_nothing(tmp_path: Path) -> None:
    open_identity(tmp_path).principals.add("ann")
    script = (
        "import sys; from pathlib import Path; from amux.hub.identity import open_identity\n"
        "found = open_identity(Path(sys.argv[1]))\n"
        "for n in range(10):\n"
        "    found.principals.add_alias('ann', sys.argv[2] + str(n))\n"
        "    found.credentials.issue('user', principal='ann')\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), letter])
        for letter in "abcdef"
    ]
    assert [writer.wait(SECONDS) for writer in writers] == [0] * 6
    found = open_identity(tmp_path)
    assert len(found.principals.current().by_id["ann"].aliases) == 60
    assert len(found.credentials.current()) == 60


def test_the_first_use_enrols_the_account_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert enrol_local(home) == account_principal()
    before = {path.name: path.read_bytes() for path in (home / "connections").glob("*.json")}
    assert set(before) == {"user.json", "runtime.json", "admin.json"}
    assert enrol_local(home) == account_principal()
    assert before == {
        path.name: path.read_bytes() for path in (home / "connections").glob("*.json")
    }
    for path in (home / "connections").glob("*.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kinds = [credential.kind for credential in open_identity(home).credentials.current().values()]
    assert sorted(kinds) == ["admin", "runtime", "user"]


def test_a_lost_connection_file_is_made_anew_and_the_old_credential_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    enrol_local(home)
    path = home / "connections" / "user.json"
    old = json.loads(path.read_bytes())["token"]
    path.unlink()
    enrol_local(home)
    registry = open_identity(home)
    with pytest.raises(Unauthenticated):
        registry.authenticate(old)
    assert registry.authenticate(json.loads(path.read_bytes())["token"]).kind == "user"


def test_the_home_is_found_made_and_resolved_once(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o755)
    link = tmp_path / "link"
    link.symlink_to(real)
    assert open_home({"AMUX_HOME": str(link)}) == real
    assert stat.S_IMODE(real.stat().st_mode) == 0o700
    made = open_home({"HOME": str(tmp_path / "account")})
    assert made == tmp_path / "account" / ".amux"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    for bad in ({"AMUX_HOME": "relative"}, {}, {"HOME": ""}, {"HOME": "relative"}):
        with pytest.raises(HomeRefused):
            home_path(bad)
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeRefused, match="not a folder"):
        open_home({"AMUX_HOME": str(tmp_path / "file")})


def test_the_runs_root_follows_the_environment_then_the_account(tmp_path: Path) -> None:
    named = {"AMUX_RUNS": str(tmp_path / "here" / "runs")}
    assert agent_socket(tmp_path, named, euid=0) == tmp_path / "here" / "agent.sock"
    assert runs_root(tmp_path, {}, euid=1000) == tmp_path / "runs"
    for_root = runs_root(tmp_path, {}, euid=0)
    assert for_root.parts[:4] == ("/", "var", "lib", "amux")
    assert (len(for_root.parts[4]), for_root.name) == (12, "runs")
    assert for_root != runs_root(tmp_path / "other", {}, euid=0)
    with pytest.raises(HomeRefused):
        runs_root(tmp_path, {"AMUX_RUNS": "runs"}, euid=0)


def _lease(
    registry: Registry, clock: Clock, runtime: str, *, name: str = "launch", seconds: int = 0
) -> tokens.Token:
    token = tokens.make("agent")
    registry.launches.save(
        Launch(
            id=name,
            runtime=runtime,
            principal="ann",
            binding="global",
            credential=token.id,
            digest=token.digest,
            expires=int(clock.now) + (seconds or LEASE_SECONDS),
            ends=clock.now + (seconds or LEASE_SECONDS),
            boot=launches.BOOT_ID.read_text().strip(),
        )
    )
    return token
