"""`amux launch --user` from a person's shell: the terminal, pipes, signals and refusals."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import pytest

from fixtures import accounts
from fixtures.isolated import isolated_host, scripted
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from fixtures.accounts import Account

pytestmark = pytest.mark.root

PYTHON = "/usr/bin/python3"
AMUX = (sys.executable, "-m", "amux.launcher.command")
TREE = Path(__file__).parents[2]


@pytest.fixture(scope="module", name="host")
def _host() -> Iterator[Host]:
    with isolated_host() as made:
        yield made


@pytest.fixture(scope="module", name="alice")
def _alice() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    with accounts.reachable_folder() as folder:
        yield folder


def command(alice: Account, program: Path, *more: str) -> tuple[str, ...]:
    options = ("--user", alice.name, "--principal", "ann", "--executable", str(program), *more)
    return (*AMUX, "launch", "pi", *options)


def environment(host: Host) -> dict[str, str]:
    return {**host.environ, "TERM": "xterm", "PYTHONPATH": str(TREE)}


def test_a_target_on_a_terminal_cannot_type_into_the_callers_shell(
    host: Host, place: Path, alice: Account
) -> None:
    """TIOCSTI pushes input into a terminal; the caller's must be none that the agent can open."""
    body = """
import fcntl, termios
seen = []
def push(fd, what):
    try:
        for byte in b'\\necho taken-$((6*7))\\n': fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
        seen.append('pushed ' + what)
    except OSError as error: seen.append(what + ' ' + error.strerror)
for fd in (0, 1, 2): push(fd, f'fd {fd} ' + str(os.isatty(fd)))
own = os.ttyname(0)
for path in ('/dev/tty', '/dev/console', '/dev/tty0', '/dev/tty1',
             *sorted('/dev/pts/' + name for name in os.listdir('/dev/pts'))):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
        try: fd = os.open(path, flags | os.O_NOCTTY)
        except OSError: continue
        if path not in (own, '/dev/tty', '/dev/pts/ptmx'): seen.append('opened ' + path)
        push(fd, path); os.close(fd)
for pid in (os.getppid(), os.getsid(0)):
    for fd in (0, 1, 2):
        try: os.close(os.open(f'/proc/{pid}/fd/{fd}', os.O_RDWR)); seen.append('reopened')
        except OSError: pass
open('/dev/stderr', 'w').close()
left = [fd for fd in os.listdir('/proc/self/fd') if int(fd) > 2]
print('descriptors', [fd for fd in left if os.path.exists(f'/proc/self/fd/{fd}')])
print('owner', os.fstat(0).st_uid == os.getuid(), 'session', os.getsid(0) != 0)
print('REPORT', json.dumps([line for line in seen if 'opened' in line or 'reopened' in line]))
"""
    program = scripted(place, PYTHON, body)
    shell = pexpect.spawn(
        "/bin/sh",
        env={**environment(host), "PS1": "outer$ "},
        cwd=str(TREE),
        timeout=SECONDS,
        encoding="utf-8",
        dimensions=(40, 200),
    )
    heard = io.StringIO()
    shell.logfile_read = heard
    try:
        shell.expect_exact("outer$ ")
        shell.sendline(shlex.join(command(alice, program)))
        shell.expect(r"REPORT (\[.*\])\r\n")
        shell.expect_exact("outer$ ")
        shell.sendline("echo status=$?; stty -a | grep -c ' echo '; echo the-end")
        shell.expect_exact("\r\nthe-end\r\n")
        shell.sendline("exit")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    screen = heard.getvalue()
    assert "REPORT []" in screen
    assert "descriptors []" in screen
    assert "owner True session True" in screen
    assert re.search(r"status=0\r\n1\r\nthe-end", screen), screen  # the terminal is as it was
    assert "taken-42" not in screen


def test_a_service_that_is_not_root_launches_with_capabilities_and_hands_none_on(
    place: Path, alice: Account
) -> None:
    body = """
names = ('Uid', 'CapPrm', 'CapEff', 'CapAmb')
facts = [line for line in open('/proc/self/status').read().splitlines() if line.startswith(names)]
print(json.dumps(facts), flush=True)
print(os.system('amux memory search anything') >> 8)
"""
    program = scripted(place, PYTHON, body)
    granted = "+chown,+dac_override,+fowner,+kill,+setgid,+setuid"
    with accounts.account() as service:
        runs = place / "runs-of-the-service"
        runs.mkdir(mode=0o711)
        (runs / "runs").mkdir(mode=0o711)
        for folder in (runs, runs / "runs"):
            os.chown(folder, service.uid, service.gid)
        become = (
            "/usr/bin/setpriv", f"--reuid={service.uid}", f"--regid={service.gid}",
            "--clear-groups", f"--inh-caps={granted}", f"--ambient-caps={granted}",
        )  # fmt: skip
        variables = {
            "HOME": str(service.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "AMUX_RUNS": str(runs / "runs"),
            "PYTHONPATH": str(TREE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

        def amux(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                (*become, *AMUX, *words),
                capture_output=True,
                text=True,
                env=variables,
                cwd=TREE,
                timeout=SECONDS,
                check=False,
            )

        assert amux("system", "config", "set", "memory.enabled", "true").returncode == 0
        try:
            done = amux("launch", "pi", "--user", alice.name, "--executable", str(program))
        finally:
            assert amux("hub", "stop").returncode == 0
    assert done.returncode == 0, done.stderr
    facts, status = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    uids, *capabilities = [line.split("\t")[1:] for line in json.loads(facts)]
    assert uids == [str(alice.uid)] * 4
    assert {int(one[0], 16) for one in capabilities} == {0}
    assert status == "0", done.stderr


def test_roots_default_place_for_runs_can_be_reached_whatever_the_umask(
    place: Path, alice: Account
) -> None:
    home = place / "service" / "amux"
    home.parent.mkdir(mode=0o700)
    variables = {"PATH": "/usr/bin:/bin", "AMUX_HOME": str(home), "PYTHONPATH": str(TREE)}
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    body = "print(os.environ['AMUX_CLI'], os.system('amux memory search x'))"
    program = scripted(place, PYTHON, body)

    def amux(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*AMUX, *words),
            capture_output=True,
            text=True,
            env=variables,
            cwd=TREE,
            timeout=SECONDS,
            check=False,
            umask=0o077,
        )

    assert amux("system", "config", "set", "memory.enabled", "true").returncode == 0
    try:
        done = amux("launch", "pi", "--user", alice.name, "--executable", str(program))
        assert done.returncode == 0, done.stderr
        cli, status = done.stdout.splitlines()[-1].split()
        assert Path(cli).is_relative_to(f"/var/lib/amux/{digest}/runs")
        assert status == "0", done.stderr
    finally:
        amux("hub", "stop")
        shutil.rmtree(f"/var/lib/amux/{digest}", ignore_errors=True)


def test_pipes_and_the_exit_status_pass_through(host: Host, place: Path, alice: Account) -> None:
    body = """
data = sys.stdin.read()
sys.stderr.write('heard\\n'); sys.stdout.write(data.upper()); sys.exit(7)
"""
    done = subprocess.run(
        command(alice, scripted(place, PYTHON, body)),
        input="some words\n",
        capture_output=True,
        text=True,
        env=environment(host),
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "SOME WORDS\n"), done.stderr
    assert "heard" in done.stderr
    assert list(host.runs.iterdir()) == []


def test_output_that_a_target_handed_out_of_its_run_does_not_keep_amux(
    host: Host, place: Path, alice: Account
) -> None:
    """A process of the target's that amux never started holds the pipe, and writes on and on."""
    accomplice = """
import array, os, socket, sys, threading
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
print('ready', flush=True)
connection, _ = server.accept()
_, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
fd = array.array('i', ancillary[0][2])[0]
connection.send(b'x'); connection.close()
try:
    while True: os.write(fd, b'y' * 4096)
except OSError as error: print(error.strerror, flush=True)
"""
    body = f"""
import socket
with socket.socket(socket.AF_UNIX) as one:
    one.connect({str(alice.home / "out")!r})
    socket.send_fds(one, [b'x'], [1])
    one.recv(1)
"""
    outside = subprocess.Popen(
        (PYTHON, "-c", accomplice, str(alice.home / "out")),
        stdout=subprocess.PIPE,
        text=True,
        user=alice.uid,
        group=alice.gid,
        extra_groups=[],
        cwd="/",
    )
    with outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "ready\n"
        done = subprocess.run(
            command(alice, scripted(place, PYTHON, body)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # without an end, were it kept
            stderr=subprocess.PIPE,
            env=environment(host),
            cwd=TREE,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert outside.stdout.readline() == "Broken pipe\n"
    assert list(host.runs.iterdir()) == []


def test_a_private_home_is_relocated_with_its_environment_and_said_to_be_weak(
    host: Host, place: Path
) -> None:
    body = """
import subprocess
home = os.environ['HOME']
print(json.dumps({
    'environment': dict(os.environ), 'uid': os.getuid(),
    'files': sorted(os.path.relpath(os.path.join(folder, name), home)
                    for folder, _, names in os.walk(home) for name in names),
    'mode': os.stat(home + '/.codex/auth.json').st_mode & 0o777,
    'search': subprocess.run([os.environ['AMUX_CLI'], 'memory', 'search', 'x'],
                             capture_output=True, text=True).returncode,
}))
"""
    key = host.home.parent / "key.json"
    key.write_text("{}")
    program = scripted(place, PYTHON, body)
    home = place / "private"
    done = subprocess.run(
        (
            *AMUX, "launch", "pi", "--principal", "ann", "--executable", str(program), "--json",
            "--private-home", str(home), "--provide", f"{key}:.codex/auth.json", "--env", "CHOSEN",
        ),
        capture_output=True,
        text=True,
        env={
            **environment(host), "CODEX_HOME": "/root/.codex", "CLAUDE_CONFIG_DIR": "/root/.claude",
            "PI_CODING_AGENT_DIR": "/root/.pi", "CHOSEN": "yes", "AWS_SECRET_ACCESS_KEY": "no",
        },
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    wanted = {
        "HOME": str(home),
        "CODEX_HOME": f"{home}/.codex",
        "PI_CODING_AGENT_DIR": f"{home}/.pi/agent",
        "CHOSEN": "yes",
        "AMUX_MEMORY_BINDING": "principal:ann",
    }
    assert {name: seen["environment"].get(name) for name in wanted} == wanted
    for name in ("CLAUDE_CONFIG_DIR", "AWS_SECRET_ACCESS_KEY", "SERVICE_API_KEY", "AMUX_HOME"):
        assert name not in seen["environment"]
    assert seen["files"] == [".codex/auth.json"]
    assert (seen["mode"], seen["uid"], seen["search"]) == (0o600, 0, 0)
    report = json.loads(done.stderr.splitlines()[0])["report"]
    assert report["isolation"] == "private-home (weak)"


def test_any_command_can_be_launched_as_another_user(host: Host, alice: Account) -> None:
    done = subprocess.run(
        (*AMUX, "launch", "generic", "--user", alice.name, "--", "sh", "-c", "id -u; pwd; exit 9"),
        capture_output=True,
        text=True,
        env=environment(host),
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (9, f"{alice.uid}\n{alice.home}\n"), done.stderr


@pytest.mark.parametrize("missing", ["setuid", "setgid", "chown"])
def test_without_the_capabilities_a_launch_is_refused_before_anything_is_made(
    host: Host, place: Path, alice: Account, missing: str
) -> None:
    program = scripted(place, PYTHON, "print('ran')")
    sessions = host.home / "sessions"
    before = sorted(sessions.glob("*"))
    done = subprocess.run(
        (
            "/usr/bin/setpriv", f"--bounding-set=-{missing}", f"--inh-caps=-{missing}", "--",
            *command(alice, program),
        ),
        capture_output=True,
        text=True,
        env=environment(host),
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, "")
    assert f"CAP_{missing.upper()}" in done.stderr
    assert (sorted(sessions.glob("*"))) == before
    assert not host.runs.exists() or list(host.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--user", "amux-no-such-user"), "there is no user 'amux-no-such-user'"),
        (("--user", "root"), "is root"),
        (("--user", "ALICE", "--private-home", "/var/tmp/x"), "exclude each other"),  # noqa: S108
        (("--user", "ALICE", "--provide", "/nonexistent:x"), "/nonexistent cannot be provided"),
        (("--user", "ALICE", "--provide", "/etc/hostname:../x"), "not a path below"),
        (("--user", "ALICE", "--provide", "/etc:.config"), "never a whole folder"),
        (("--user", "ALICE", "--env", "HOME"), "HOME"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_without_a_traceback(
    host: Host, place: Path, alice: Account, option: tuple[str, ...], said: str
) -> None:
    program = scripted(place, PYTHON, "print('ran')")
    options = tuple(alice.name if word == "ALICE" else word for word in option)
    done = subprocess.run(
        (*AMUX, "launch", "pi", "--executable", str(program), "--principal", "ann", *options),
        capture_output=True,
        text=True,
        env=environment(host),
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not host.runs.exists() or list(host.runs.iterdir()) == []


def test_a_killed_amux_leaves_neither_agent_nor_folder_behind(
    host: Host, place: Path, alice: Account
) -> None:
    body = """
child = os.fork()
if child == 0: os.setsid()
print(os.environ['AMUX_CLI'], os.getpid(), child, flush=True) if child else None
sys.stdin.read()
import time; time.sleep(1000)
"""
    process = subprocess.Popen(
        command(alice, scripted(place, PYTHON, body)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(host),
        cwd=TREE,
    )
    assert process.stdout is not None
    cli, *pids = process.stdout.readline().split()
    assert Path(cli).exists()
    watched = [os.pidfd_open(int(pid)) for pid in pids]
    process.kill()
    process.communicate()
    for descriptor in watched:
        assert select.select([descriptor], [], [], SECONDS)[0], "a process of the run lives on"
        os.close(descriptor)
    again = subprocess.run(
        command(alice, scripted(place, PYTHON, "print('ran')")),
        capture_output=True,
        text=True,
        env=environment(host),
        cwd=TREE,
        timeout=SECONDS,
        check=False,
    )
    assert (again.returncode, again.stdout) == (0, "ran\n"), again.stderr
    assert list(host.runs.iterdir()) == []
