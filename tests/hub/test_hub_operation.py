"""What an operator meets: damaged files, full and read-only disks, hang-ups, left-overs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.client import HubClient
from amux.hub.connection import connection_path
from amux.hub.documents import read_document
from amux.hub.errors import StorageFailed
from amux.hub.leftovers import OLD_SECONDS
from amux.hub.store import MemoryStore
from amux.hub.unixsocket import connect
from amux.hub.values import GetRequest, Scope, SearchRequest, UpsertRequest
from fixtures.hubs import HubHome, new_home
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.hub.documents import Document

AMUX: Final = str(Path(sys.executable).with_name("amux"))
PRIVATE_MOUNTS: Final = ("unshare", "--mount", "--propagation", "private")


def _amux(home: HubHome, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AMUX, *arguments],
        env={**home.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def _events(home: HubHome) -> list[dict[str, object]]:
    return [json.loads(line) for line in home.log.read_text().splitlines() if line[:1] == "{"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}'])
@pytest.mark.parametrize("name", ["credentials", "principals"])
def test_a_hub_with_damaged_identity_does_not_start_and_says_which_file(
    hub_home: HubHome, name: str, text: str
) -> None:
    (hub_home.home / "identity" / f"{name}.json").write_text(text)
    done = _amux(hub_home, "hub", "serve")
    assert done.returncode == 78
    assert f"identity/{name}.json" in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_damaged_under_a_running_hub_are_named_in_its_log(hub: HubHome) -> None:
    (hub.home / "identity" / "credentials.json").write_text("{")
    reply = hub.call("POST", "/v1/memory/get", {"path": "a.md"}, token=hub.token("user"))
    assert (reply.status, reply.code) == (507, "storage_failed")
    reasons = [str(one["reason"]) for one in _events(hub) if one["event"] == "own files"]
    assert any("identity/credentials.json" in reason for reason in reasons)


def test_a_damaged_configuration_is_named_in_the_log(hub: HubHome) -> None:
    (hub.home / "config.toml").write_text("[mem")
    reply = hub.call("GET", "/v1/system/config", token=hub.token("admin"))
    assert reply.code == "storage_failed"
    reasons = [str(one["reason"]) for one in _events(hub) if one["event"] == "own files"]
    assert any("config.toml" in reason for reason in reasons)


@pytest.mark.parametrize(
    "head",
    [b"POST /v1/x HTTP/1.1\r\n", b"POST /v1/memory/upsert HTTP/1.1\r\n"],
    ids=["unknown call", "write"],
)
def test_a_caller_that_hangs_up_in_its_body_is_no_fault_of_the_hub(
    hub: HubHome, head: bytes
) -> None:
    token = hub.token("user").encode()
    for _ in range(3):
        with connect(hub.private, seconds=SECONDS) as channel:
            channel.sendall(head + b"Host: localhost\r\nAuthorization: Bearer " + token)
            channel.sendall(b"\r\nContent-Length: 100\r\n\r\nhalf")
    assert hub.stop() == 0
    assert [one for one in _events(hub) if "error" in one or one["level"] == "error"] == []


@pytest.mark.parametrize(
    "break_it",
    [
        lambda home: home.home.chmod(0o770),
        lambda home: connection_path(home.home, "user").write_text(""),
        lambda home: (home.home / "config.toml").write_text("[memory"),
        lambda home: home.environ.update(AMUX_HOME="", HOME=""),
        lambda home: (home.home / "config.toml").write_text('[hub]\nlisten = "h:99999"\n'),
        lambda home: (home.home / "hub.lock").mkdir(),
    ],
    ids=["open home", "damaged connection", "damaged settings", "no home", "port", "lock folder"],
)
def test_a_serve_that_has_to_be_mended_first_ends_with_78_and_one_sentence(
    hub_home: HubHome, break_it: Callable[[HubHome], object]
) -> None:
    break_it(hub_home)
    done = _amux(hub_home, "hub", "serve")
    assert done.returncode == 78
    assert done.stderr.startswith("amux: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["localhost:99999", "localhost:", ":1", "x", "h:-1", "h:65536"])
def test_an_address_that_nothing_could_listen_on_is_refused_when_it_is_set(
    hub_home: HubHome, value: str
) -> None:
    done = _amux(hub_home, "system", "config", "set", "hub.listen", value)
    assert done.returncode == 1
    assert "HOST:PORT" in done.stderr
    assert not (hub_home.home / "config.toml").exists()


@pytest.mark.parametrize("ignored", [True, False], ids=["nohup", "terminal"])
def test_a_hang_up_ends_a_hub_unless_it_was_told_to_ignore_it(
    hub_home: HubHome, *, ignored: bool
) -> None:
    hub_home.start(*(["nohup"] if ignored else []))
    assert hub_home.process is not None
    hub_home.process.send_signal(signal.SIGHUP)
    if ignored:
        with hub_home.client("user") as user:
            assert user.health().version
        assert hub_home.stop() == 0
    else:
        assert hub_home.process.wait(SECONDS) == 0


def test_what_a_killed_process_left_in_a_home_is_removed_at_the_next_start(
    hub_home: HubHome,
) -> None:
    hub_home.start()
    assert hub_home.stop() == 0
    home = hub_home.home
    for folder in ("cache", "sessions", "bin"):
        (home / folder).mkdir(mode=0o700, exist_ok=True)
    left = [
        home / ".config.toml.0123456789ab.tmp",
        home / ".hub.sock.01234567",
        home / ".agent.sock.01234567",
        home / ".amux-0123456789abcdef.tmp",
        home / "identity/.credentials.json.0123456789ab.tmp",
        home / "identity/launches/.x.json.0123456789ab.tmp",
        home / "connections/.user.json.0123456789ab.tmp",
    ]
    old = [
        home / "cache/.versions.json.0123456789ab.tmp",
        home / "sessions/.abcd.toml.0123456789ab.tmp",
        home / "bin/.amux.123.01234567",
        home / ".home.id.0123456789ab.tmp",
    ]
    young = home / "cache/.preflights.json.0123456789ab.tmp"
    others = [home / ".profile", home / "identity/notes.tmp", home / "cache/.x.tmp"]
    for path in (*left, *old, young, *others):
        path.write_text("left")
    for path in old:
        stamp = path.stat().st_mtime - OLD_SECONDS - 10
        os.utime(path, (stamp, stamp))
    hub_home.start()
    assert [path.name for path in (*left, *old) if path.exists()] == []
    assert all(path.exists() for path in (young, *others))


def test_a_match_that_cannot_be_read_again_is_counted_and_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    store = MemoryStore(tmp_path / "memory")
    for name in ("one", "two"):
        store.upsert(
            Scope(), UpsertRequest(path=f"{name}.md", content="tea\n", expected_revision="absent")
        )

    def read(name: str, folder: int, *, most: int) -> Document | None:
        if name == "one.md":
            raise StorageFailed(f"the document cannot be read: {os.strerror(errno.EMFILE)}")
        return read_document(name, folder, most=most)

    monkeypatch.setattr("amux.hub.store.read_document", read)
    found = store.search(Scope(), SearchRequest(query="tea"))
    assert [match.path for match in found.matches] == ["two.md"]
    assert (found.scanned_files, found.skipped_files, found.truncated) == (2, 1, True)


@pytest.mark.root
def test_commands_on_a_read_only_disk_are_refused_in_one_sentence(tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    program = f"""
    set -e
    mount -t tmpfs tmpfs {mount}
    export HOME={mount} AMUX_HOME={mount}/home AMUX_RUNS={tmp_path}/r/runs
    {AMUX} system config set memory.enabled true
    {AMUX} principal add first
    mount -o remount,ro {mount}
    set +e
    {AMUX} system config set memory.enabled false; echo "set $?"
    {AMUX} principal add x; echo "add $?"
    {AMUX} hub disconnect; echo "disconnect $?"
    {AMUX} hub stop; echo "stop $?"
    {AMUX} hub serve; echo "serve $?"
    """
    done = subprocess.run(
        [*PRIVATE_MOUNTS, "/bin/sh", "-c", program],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert "Traceback" not in done.stderr
    ends = [line for line in done.stdout.splitlines() if line[-1:].isdigit()]
    assert ends == ["set 1", "add 1", "disconnect 1", "stop 0", "serve 78"], done


@pytest.mark.root
def test_a_document_is_deleted_on_a_file_system_that_is_out_of_inodes(tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    program = """
import os, sys
from pathlib import Path
from amux.hub.store import MemoryStore
from amux.hub.values import ForgetRequest, Scope, UpsertRequest
root = Path(sys.argv[1]) / "memory"
root.mkdir()
store = MemoryStore(root)
asked = UpsertRequest(path="a.md", content="tea", expected_revision="absent")
revision = store.upsert(Scope(), asked).revision
try:
    for number in range(100):
        (root.parent / str(number)).touch()
except OSError as error:
    print(error.strerror)
gone = store.forget(Scope(), ForgetRequest(path="a.md", expected_revision=revision))
print(gone.already_absent, list(root.rglob("*.md")))
"""
    command = f'mount -t tmpfs -o nr_inodes=24 tmpfs {mount} && exec "$0" -c "$1" {mount}'
    done = subprocess.run(
        [*PRIVATE_MOUNTS, "/bin/sh", "-c", command, sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == ["No space left on device", "False []"]


def test_a_client_reads_again_after_the_hub_made_a_new_credential(
    hub: HubHome, tmp_path: Path
) -> None:
    with HubClient.from_file(connection_path(hub.home, "user")) as user:
        hub.registry.credentials.revoke(hub.token("user").split("_")[2])
        assert user.get(GetRequest(path="MEMORY.md")).exists is False
    other = new_home(tmp_path / "other")
    assert other.token("user") != hub.token("user")
