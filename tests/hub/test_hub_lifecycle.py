"""Start on demand and its races, one Hub per root, clean stop, restart after a crash."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from amux.hub import local
from amux.hub.client import HubClient
from amux.hub.connection import connection_path, load_connection
from amux.hub.errors import HomeRefused, HubError, NotStarted, Unavailable
from amux.hub.holder import LOCK_FILE, process_start, read_holder
from amux.hub.local import ensure_running, hub_status, stop_hub
from amux.hub.values import GetRequest, UpsertRequest
from amux.procstat import look
from fixtures.hubs import SERVER, HubHome, new_home
from fixtures.waiting import SECONDS

AT_ONCE: Final = 20
STARTER: Final = """
import os, sys
from amux.hub.home import open_home
from amux.hub.local import ensure_running
sys.stdin.read()
started = ensure_running(open_home(os.environ), os.environ)
print(started.holder.pid, started.fresh)
"""
# The real Hub, whose writes say that they began and then wait for leave to go on.
HELD_WRITES: Final = """
import sys, os
from amux.hub.server import __main__, process
began, leave = int(sys.argv.pop()), int(sys.argv.pop())
class Held(process.MemoryStore):
    def upsert(self, scope, request):
        os.write(began, b"x")
        os.read(leave, 1)
        return super().upsert(scope, request)
process.MemoryStore = Held
sys.exit(__main__.main())
"""
# The real Hub, which is told another table of mounts.
OTHER_MOUNTS: Final = """
import sys
from pathlib import Path
from amux.hub import mounts
from amux.hub.server import __main__
mounts.require_local.__kwdefaults__["table"] = Path(sys.argv.pop())
sys.exit(__main__.main())
"""


def test_twenty_launches_at_once_make_one_hub(on_demand: HubHome) -> None:
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER],
            env=on_demand.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(AT_ONCE)
    ]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.close()
        starter.stdin = None
    said = [starter.communicate(timeout=SECONDS) for starter in starters]
    assert [errors for _, errors in said if errors] == []
    words = [line.split() for line, _ in said]
    assert len({pid for pid, _ in words}) == 1
    assert [fresh for _, fresh in words].count(b"True") == 1
    with on_demand.client("user") as user:
        assert user.health().enabled is True


def test_a_hub_started_on_demand_has_nothing_of_its_starter(
    on_demand: HubHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMUX_POISON", "of the starter")
    environ = {**on_demand.environ, "AMUX_POISON": "of the starter", "PYTHONPATH": "/nowhere"}
    holder = ensure_running(on_demand.home, environ).holder
    assert holder is not None
    proc = Path(f"/proc/{holder.pid}")
    names = {item.partition(b"=")[0] for item in (proc / "environ").read_bytes().split(b"\0")}
    assert names - {b""} == {b"PATH", b"LANG", b"HOME", b"AMUX_HOME", b"AMUX_RUNS"}
    assert (proc / "cwd").readlink() == Path("/")
    process = look(holder.pid)
    assert process is not None
    assert process.parent != os.getpid()
    assert process.session != os.getsid(0)
    targets = {str(entry.readlink()) for entry in (proc / "fd").iterdir()}
    assert not any(target.startswith("pipe:") for target in targets)
    log = on_demand.home / "logs" / "hub.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert next(json.loads(line)["event"] for line in log.read_text().splitlines()) == "start"


@pytest.mark.parametrize("name", ["AMUX_RUN", "AMUX_CONNECTION", "AMUX_MEMORY_BINDING"])
def test_a_start_inside_a_run_is_refused(on_demand: HubHome, name: str) -> None:
    environ = {**on_demand.environ, name: "x"}
    with pytest.raises(NotStarted, match="inside a run"):
        ensure_running(on_demand.home, environ)
    assert read_holder(on_demand.home) is None


def test_a_start_that_fails_says_what_has_to_be_mended(on_demand: HubHome) -> None:
    (on_demand.home / "config.toml").write_text("[memory]\nenabled = true\nenbaled = 1\n")
    with pytest.raises(NotStarted, match=r"unknown setting 'memory.enbaled'; known are: memory"):
        ensure_running(on_demand.home, on_demand.environ)


def test_a_home_with_a_remote_hub_starts_none(on_demand: HubHome) -> None:
    path = connection_path(on_demand.home, "user")
    fields = {**json.loads(path.read_bytes()), "url": "https://hub.example:8443"}
    path.write_text(json.dumps(fields))
    with pytest.raises(NotStarted, match=r"uses the Hub at https://hub\.example:8443"):
        ensure_running(on_demand.home, on_demand.environ)
    path.unlink()


def test_a_second_hub_on_one_root_is_refused_and_names_the_holder(hub: HubHome) -> None:
    assert hub.process is not None
    second = _serve(hub)
    assert second.returncode == 75
    assert f"process {hub.process.pid} holds hub.lock" in second.stderr
    with hub.client("user") as user:
        assert user.health().enabled is True


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        "[" * 100_000,
        '{"pid": 1e999, "settings": {}}',
        '{"pid": 9223372036854775808, "start": 1, "settings": {}}',
    ],
)
def test_a_holder_that_the_file_does_not_name_is_named_by_the_kernel(
    hub: HubHome, said: str
) -> None:
    assert hub.process is not None
    (hub.home / "hub.lock").write_text(said)
    assert read_holder(hub.home) is None
    second = _serve(hub)
    assert second.returncode == 75
    assert f"end it and start again: kill {hub.process.pid}" in second.stderr


def test_a_second_hub_that_reaches_the_same_memory_by_a_link_is_refused(
    hub: HubHome, tmp_path: Path
) -> None:
    other = new_home(tmp_path / "other")
    (other.home / "memory").symlink_to(hub.home / "memory")
    second = _serve(other)
    assert second.returncode == 75
    assert "holds the memory root" in second.stderr


def test_a_clean_stop_finishes_the_writes_in_flight(hub_home: HubHome) -> None:
    hub_home.set("memory.enabled", "true")
    began_read, began_write = os.pipe()
    leave_read, leave_write = os.pipe()
    ready_read, ready_write = os.pipe()
    with hub_home.log.open("ab") as log:
        hub_home.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                HELD_WRITES,
                "--ready-fd",
                str(ready_write),
                str(leave_read),
                str(began_write),
            ],
            env=hub_home.environ,
            stderr=log,
            pass_fds=(ready_write, began_write, leave_read),
        )
    for descriptor in (ready_write, began_write, leave_read):
        os.close(descriptor)
    assert os.read(ready_read, 64) == b"ready"
    answers: list[object] = []

    def write(number: int) -> None:
        with hub_home.client("user") as user:
            request = UpsertRequest(
                path=f"flight/{number}.md", content="landed\n", expected_revision="absent"
            )
            answers.append(user.upsert(request).unchanged)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for _ in writers:
        assert os.read(began_read, 1) == b"x"
    hub_home.process.terminate()
    _wait_until_closed(hub_home)
    assert hub_home.process.poll() is None
    os.write(leave_write, b"xxx")
    for writer in writers:
        writer.join(SECONDS)
    assert hub_home.process.wait(SECONDS) == 0
    hub_home.process = None
    for descriptor in (began_read, leave_write, ready_read):
        os.close(descriptor)
    assert answers == [False, False, False]
    folder = hub_home.home / "memory" / "global" / "flight"
    assert [path.read_text() for path in sorted(folder.iterdir())] == ["landed\n"] * 3


def test_a_stop_does_not_wait_for_a_body_that_never_comes(hub: HubHome) -> None:
    from amux.hub.unixsocket import connect  # noqa: PLC0415  # only here

    line = f"Authorization: Bearer {hub.token('user')}\r\nContent-Length: 99\r\n\r\n".encode()
    with connect(hub.private, seconds=SECONDS) as channel:
        channel.sendall(b"POST /v1/memory/get HTTP/1.1\r\nHost: localhost\r\n" + line)
        with hub.client("user") as user:
            user.health()
        assert hub.stop() == 0
        assert channel.recv(65536).split(b" ", 2)[1] == b"503"


def test_a_clean_stop_leaves_no_socket_and_names_no_holder(hub: HubHome) -> None:
    assert hub.agents.is_socket()
    assert hub.stop() == 0
    assert not hub.private.exists()
    assert not hub.agents.exists()
    assert (hub.home / LOCK_FILE).read_bytes() == b""
    with hub.client("user") as user, pytest.raises(Unavailable, match="amux hub status"):
        user.health()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_ending_signal_stops_cleanly(hub: HubHome, number: signal.Signals) -> None:
    assert hub.process is not None
    hub.process.send_signal(number)
    assert hub.process.wait(SECONDS) == 0
    hub.process = None


def test_after_a_kill_the_next_start_serves_what_was_acknowledged(hub: HubHome) -> None:
    with hub.client("runtime") as runtime:
        grant = runtime.open_launch("survivor")
    with hub.agent(grant.token, grant.binding) as agent:
        written = agent.upsert(
            UpsertRequest(path="kept.md", content="kept\n", expected_revision="absent")
        )
    hub.kill()
    assert hub.private.is_socket()
    assert read_holder(hub.home) is None
    hub.start()
    with hub.agent(grant.token, grant.binding) as agent:
        assert agent.get(GetRequest(path="kept.md")).revision == written.revision


def test_stop_and_status_know_a_hub_by_its_start_time_too(on_demand: HubHome) -> None:
    ensure_running(on_demand.home, on_demand.environ)
    holder = read_holder(on_demand.home)
    assert holder is not None
    found = hub_status(on_demand.home)
    assert (found.running, found.answers, found.restart_needed) == (True, True, False)
    assert stop_hub(on_demand.home) is True
    assert stop_hub(on_demand.home) is False
    # A stale lock file that names a living process of somebody else's: us.
    fields = {**holder.as_json(), "pid": os.getpid()}
    (on_demand.home / LOCK_FILE).write_text(json.dumps(fields))
    assert process_start(os.getpid()) != holder.start
    assert stop_hub(on_demand.home) is False
    assert hub_status(on_demand.home).running is False


def test_status_shows_running_and_configured_values_apart(hub: HubHome) -> None:
    hub.set("memory.isolation", "principal")
    found = hub_status(hub.home)
    assert found.settings()["memory.isolation"] == ("none", "principal")
    assert found.settings()["memory.enabled"] == (True, True)
    assert found.restart_needed is True
    with hub.client("user") as user:
        assert user.health().policy == "none"
    hub.stop()
    hub.start()
    assert hub_status(hub.home).restart_needed is False


def test_sockets_have_their_modes_and_the_longest_paths_work(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    made = new_home(folder)
    made.set("memory.enabled", "true")
    try:
        made.start()
        assert stat.S_IMODE(made.private.stat().st_mode) == 0o600
        assert stat.S_IMODE(made.agents.stat().st_mode) == 0o666
        assert stat.S_IMODE(made.agents.parent.stat().st_mode) == 0o711
        with made.client("runtime") as runtime:
            grant = runtime.open_launch("deep")
        with made.agent(grant.token, grant.binding) as agent:
            assert agent.capability().binding == "global"
        assert local.answers(made.home)
        assert made.stop() == 0
        assert not made.private.exists()
    finally:
        made.kill()


def test_an_agents_socket_folder_that_others_can_write_is_refused(hub_home: HubHome) -> None:
    hub_home.agents.parent.mkdir()
    hub_home.agents.parent.chmod(0o777)
    refused = _serve(hub_home)
    assert refused.returncode == 78
    assert "group or others may write" in refused.stderr
    assert not hub_home.private.exists()


def test_an_agents_socket_below_a_folder_that_others_can_swap_is_refused(
    hub_home: HubHome,
) -> None:
    hub_home.agents.parent.mkdir(mode=0o711)
    hub_home.agents.parent.parent.chmod(0o777)
    refused = _serve(hub_home)
    assert refused.returncode == 78
    assert "could replace" in refused.stderr


def test_a_root_on_a_network_file_system_is_refused_unless_allowed(
    hub_home: HubHome, tmp_path: Path
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("21 1 0:19 / / rw,relatime - ext4 /dev/sda rw\n")
    with table.open("a") as rows:
        rows.write(f"22 21 0:20 / {hub_home.home} rw,relatime - nfs4 server:/export rw\n")
    command = [sys.executable, "-c", OTHER_MOUNTS, str(table)]
    refused = subprocess.run(
        command, env=hub_home.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert refused.returncode == 78
    assert "nfs4" in refused.stderr
    hub_home.set("memory.allow_network_mount", "true")
    with subprocess.Popen(command, env=hub_home.environ, stderr=subprocess.PIPE) as allowed:
        assert allowed.stderr is not None
        # Written once its signals are handled.
        assert json.loads(allowed.stderr.readline())["event"] == "start"
        allowed.terminate()
        assert allowed.wait(SECONDS) == 0


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_home_that_others_can_write_is_refused(hub_home: HubHome, mode: int) -> None:
    hub_home.home.chmod(mode)
    refused = _serve(hub_home)
    assert refused.returncode == 78
    assert f"has mode {mode:04o}" in refused.stderr
    assert "chmod go-w" in refused.stderr


def test_a_connection_file_that_others_can_read_is_refused(hub_home: HubHome) -> None:
    path = connection_path(hub_home.home, "user")
    path.chmod(0o644)
    with pytest.raises(HomeRefused, match="chmod 600"):
        load_connection(path)


def test_plain_http_is_refused_by_every_client(hub_home: HubHome) -> None:
    path = connection_path(hub_home.home, "user")
    fields = {**json.loads(path.read_bytes()), "url": "http://127.0.0.1:8080"}
    path.write_text(json.dumps(fields))
    with pytest.raises(HubError, match="http:// is refused"):
        HubClient.from_file(path)


def _serve(hub: HubHome) -> subprocess.CompletedProcess[str]:
    """Run a Hub that is expected to refuse."""
    return subprocess.run(
        SERVER,
        env=hub.environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def _wait_until_closed(hub: HubHome) -> None:
    """Return once the Hub takes no more connections."""
    deadline = threading.Event()
    timer = threading.Timer(SECONDS, deadline.set)
    timer.start()
    try:
        while local.answers(hub.home):
            assert not deadline.is_set()
    finally:
        timer.cancel()
