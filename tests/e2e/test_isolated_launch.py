"""What an isolated launch can see and reach, said by a scripted agent from inside it."""

from __future__ import annotations

import json
import os
import resource
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.hub.local import stop_hub
from amux.hub.values import ABSENT
from amux.launcher.errors import AgentNotFound, BadRequest, IsolationRefused
from amux.launcher.launch import launch
from amux.launcher.process.open_files import original_open_files
from amux.launcher.recovery import recover
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionRecord, SessionStore, State
from amux.materializer.errors import IdentityRefused, NotProvided, UidTaken
from amux.materializer.runs import allocate
from amux.materializer.values import ProvidedFile
from amux.providers.base import Mode
from fixtures import accounts
from fixtures.isolated import SERVICE_SECRET, answer, isolated_host, scripted, start
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from amux.launcher.session.notice import Notice
    from fixtures.accounts import Account

pytestmark = pytest.mark.root

PYTHON = "/usr/bin/python3"
INSIDE = """
import resource, subprocess
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())
fds = {}
for fd in os.listdir('/proc/self/fd'):
    try: fds[fd] = os.readlink(f'/proc/self/fd/{fd}')
    except OSError: pass
def reopens(path):
    try: os.close(os.open(path, os.O_WRONLY)); return True
    except OSError as error: return error.strerror
print(json.dumps({
    'status': {name: status[name].split() for name in
               ('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs')},
    'umask': os.umask(0o077), 'environment': dict(os.environ), 'cwd': os.getcwd(), 'fds': fds,
    'limits': {name: resource.getrlimit(getattr(resource, name))
               for name in dir(resource) if name.startswith('RLIMIT_')},
    'session': os.getsid(0) == os.getpid(), 'tty': reopens('/dev/tty'),
    'stderr': reopens('/dev/stderr'), 'stdout': reopens('/dev/stdout'),
    'which': subprocess.run(['/bin/sh', '-c', 'command -v amux'], capture_output=True,
                            text=True).stdout.strip(),
    'argv': sys.argv,
}))
"""


@pytest.fixture(scope="module", name="host")
def _host() -> Iterator[Host]:
    with isolated_host() as made:
        yield made


@pytest.fixture(scope="module", name="alice")
def _alice() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture(scope="module", name="bob")
def _bob() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    with accounts.reachable_folder() as folder:
        yield folder


def test_identity_environment_descriptors_and_folders_are_the_targets(
    host: Host, place: Path
) -> None:
    with accounts.group() as (group, gid), accounts.account(groups=(group,)) as carol:
        run = start(host, scripted(place, PYTHON, INSIDE), user=carol.name, principal="ann")
        seen = answer(run)
    status = seen["status"]
    assert status["Uid"] == [str(carol.uid)] * 4
    assert status["Gid"] == [str(carol.gid)] * 4
    assert {int(one) for one in status["Groups"]} == {carol.gid, gid}
    assert {int(status[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == ["1"]
    assert seen["umask"] == 0o077
    assert seen["cwd"] == str(carol.home)
    assert {fd for fd in seen["fds"] if int(fd) > 2 and "/fd" not in seen["fds"][fd]} == set()
    assert all(link.startswith("pipe:") for fd, link in seen["fds"].items() if int(fd) < 3)
    assert seen["session"] is True
    assert seen["tty"] == "No such device or address"
    assert seen["stderr"] is True
    assert seen["stdout"] is True
    for name, value in seen["limits"].items():
        soft, hard = resource.getrlimit(getattr(resource, name))
        if name == "RLIMIT_NOFILE":  # a supervisor raises its own, not the agent's
            soft = original_open_files() or soft
        if name == "RLIMIT_RTTIME":  # its soft value marks the run (amux.launcher.process.teardown)
            soft = value[0]
        assert tuple(value) == (soft, hard), name
    home = str(carol.home)
    environment = seen["environment"]
    commands = str(Path(environment["AMUX_CLI"]).parent)
    assert environment["PATH"].split(":")[0] == commands
    assert seen["which"] == environment["AMUX_CLI"]
    wanted = {
        "HOME": home,
        "USER": carol.name,
        "LOGNAME": carol.name,
        "SHELL": "/bin/sh",
        "CODEX_HOME": f"{home}/.codex",
        "PI_CODING_AGENT_DIR": f"{home}/.pi/agent",
        "AMUX_MEMORY_BINDING": "principal:ann",
    }
    assert {name: environment.get(name) for name in wanted} == wanted
    assert "CLAUDE_CONFIG_DIR" not in environment
    assert environment.keys() <= {
        *wanted, "PATH", "PWD", "LANG", "LC_CTYPE", "TERM", "AMUX_CLI", "AMUX_CONNECTION",
        "AMUX_RUN",
    }, environment.keys()  # fmt: skip
    assert SERVICE_SECRET not in json.dumps(seen)
    assert run.report.isolation == f"user {carol.name}"


def test_nothing_of_the_services_and_nothing_of_another_run_can_be_reached(
    host: Host, place: Path, alice: Account
) -> None:
    other = allocate(host.runs)
    targets = [
        *(str(host.home / name) for name in (
            "", "config.toml", "memory", "memory/users", "connections", "connections/user.json",
            "connections/runtime.json", "connections/admin.json", "identity", "sessions",
            "logs/hub.log", "accounts.json", "hub.lock", "cache",
        )),
        str(host.home.parent), str(host.runs), str(other.run),
    ]  # fmt: skip
    body = f"""
import socket, pathlib
def attempt(act, path):
    try: act(path)
    except (PermissionError, FileNotFoundError): return None
    except OSError as error: return repr(error)
    return 'succeeded'
def connect(path):
    with socket.socket(socket.AF_UNIX) as one: one.connect(path)
acts = {{'list': os.listdir, 'open': lambda path: open(path).close(),
        'write': lambda path: open(path + '/x' if os.path.isdir(path) else path, 'a').close(),
        'chdir': os.chdir, 'stat below': lambda path: os.stat(path + '/.')}}
found = {{}}
for path in {targets!r}:
    for name, act in acts.items():
        if name == 'stat below' and path == {str(host.runs)!r}: continue
        if name == 'chdir' and path == {str(host.runs)!r}: continue
        result = attempt(act, path)
        if result: found[name + ' ' + path] = result
result = attempt(connect, {str(host.home / "hub.sock")!r})
if result: found['hub.sock'] = result
pathlib.Path(os.environ['AMUX_CONNECTION']).read_text()
for path in (os.environ['AMUX_CONNECTION'], os.environ['AMUX_CLI']):
    for name, act in {{'append': lambda p: open(p, 'a').close(), 'unlink': os.unlink,
                      'replace': lambda p: os.rename(os.environ['HOME'], p)}}.items():
        result = attempt(act, path)
        if result: found[name + ' ' + path] = result
print(json.dumps(found))
"""
    assert (
        answer(start(host, scripted(place, PYTHON, body), user=alice.name, principal="ann")) == {}
    )


def test_proc_of_the_service_shows_no_secret(host: Host, place: Path, alice: Account) -> None:
    body = f"""
told, argvs = [], []
for pid in (entry for entry in os.listdir('/proc') if entry.isdigit()):
    try: argvs.append(open(f'/proc/{{pid}}/cmdline').read())
    except OSError: continue
    ours = int(pid) in ({os.getpid()}, os.getppid()) or {str(host.home)!r} in argvs[-1]
    for name in ('environ', 'maps', 'mem', 'fd', 'cwd/.', 'root/.', 'map_files', 'auxv', 'stack'):
        path = f'/proc/{{pid}}/{{name}}'
        try: seen = os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)
        except OSError as error: seen = error.strerror if ours else ''
        if ours: told.append([path, str(seen)])
own = json.load(open(os.environ['AMUX_CONNECTION']))['token']
print(json.dumps({{'told': told, 'argvs': argvs, 'own': own}}))
"""
    run = start(host, scripted(place, PYTHON, body), user=alice.name, principal="ann")
    seen = answer(run)
    assert len(seen["told"]) >= 3 * 9  # this process, the shim, the Hub
    assert {said for _, said in seen["told"]} == {"Permission denied"}, seen["told"]
    tokens = [
        json.loads(path.read_text())["token"] for path in (host.home / "connections").glob("*.json")
    ]
    for argv in seen["argvs"]:
        for secret in (*tokens, seen["own"], SERVICE_SECRET):
            assert secret not in argv
            assert secret.split("_", 3)[-1] not in argv  # a secret may hold a "_" itself


MEMORY = """
import subprocess
def amux(*words, given=None, **environment):
    done = subprocess.run(['amux', 'memory', *words], input=given, capture_output=True, text=True,
                          env={**os.environ, **environment})
    return [done.returncode, done.stdout, done.stderr]
"""


def test_two_principals_at_once_and_one_on_two_agents_share_exactly_what_they_should(
    host: Host, place: Path, alice: Account, bob: Account
) -> None:
    """Three runs live at once; each waits for the others by files in a folder of its own."""
    word = secrets.token_hex(8)
    writer = f"""{MEMORY}
print(json.dumps(amux('upsert', 'topics/shared.md', '--expected-revision', 'absent',
                      given='# Of ann\\n\\n{word}\\n')))
sys.stdout.flush(); os.close(1); sys.stdin.read()
"""
    reader = f"""{MEMORY}
sys.stdin.read(1)
print(json.dumps([amux('show', 'topics/shared.md'), amux('search', {word!r}),
                  amux('export', 'topics/shared.md')]))
"""
    first = start(host, scripted(place, PYTHON, writer), user=alice.name, principal="ann")
    same = start(host, scripted(place, PYTHON, reader), user=alice.name, principal="ann")
    other = start(host, scripted(place, PYTHON, reader), user=bob.name, principal="ben")
    assert first.process.stdout is not None
    code, stdout, stderr = json.loads(first.process.stdout.read())
    assert code == 0, stderr
    for run in (same, other):
        assert run.process.stdin is not None
        run.process.stdin.write(b"x")
    shown, found, exported = answer(same)
    assert word in shown[1]
    assert word in found[1]
    assert word in exported[1]
    shown, found, exported = answer(other)
    assert json.loads(shown[1])["exists"] is False
    assert json.loads(found[1])["matches"] == []
    assert exported[0] != 0
    assert word not in json.dumps([shown, found, exported])
    first.process.close_stdin()
    assert first.wait(SECONDS) is not None
    first.process.stdout.close()
    assert json.loads(stdout)["revision"] != ABSENT


def test_no_verb_reaches_another_principals_memory(
    host: Host, place: Path, alice: Account, bob: Account
) -> None:
    """Bindings, paths and credentials are tried as a determined agent would."""
    word = secrets.token_hex(8)
    of_ben = f"""{MEMORY}
print(json.dumps(amux('upsert', 'private/plan.md', '--expected-revision', 'absent',
                      given='{word}')))
"""
    ran = start(host, scripted(place, PYTHON, of_ben), user=bob.name, principal="ben")
    assert answer(ran)[0] == 0
    key = next((host.home / "memory" / "users").glob("*/private/plan.md")).parent.parent.name
    body = f"""{MEMORY}
tried = []
for binding in ('principal:ben', 'global', '', 'principal:Ann', 'principal:ann,ben'):
    for words in (['show', 'private/plan.md'], ['search', {word!r}], ['export', 'private/plan.md'],
                  ['forget', 'private/plan.md', '--expected-revision', 'absent']):
        tried.append(amux(*words, AMUX_MEMORY_BINDING=binding))
    tried.append(amux('upsert', 'private/plan.md', '--expected-revision', 'absent', given='x',
                      AMUX_MEMORY_BINDING=binding))
own = []
for path in ('../{key}/private/plan.md', '/private/plan.md', '../../users/{key}/private/plan.md',
             '{key}/private/plan.md', 'private/plan.md', '../ben/private/plan.md'):
    own.append(amux('show', path)); own.append(amux('export', path))
    own.append(amux('forget', path, '--expected-revision', 'absent'))
own.append(amux('search', {word!r}, '--path-prefix', '../{key}'))
bare = dict(os.environ); del bare['AMUX_MEMORY_BINDING']; del bare['AMUX_CONNECTION']
unset = subprocess.run(['amux', 'memory', 'search', {word!r}], env=bare, capture_output=True)
requests = [
    {{'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {{
        'protocolVersion': '2025-06-18', 'capabilities': {{}},
        'clientInfo': {{'name': 'x', 'version': '1'}}}}}},
    {{'jsonrpc': '2.0', 'method': 'notifications/initialized'}},
] + [{{'jsonrpc': '2.0', 'id': 2 + n, 'method': 'tools/call',
      'params': {{'name': 'amux.' + name, 'arguments': arguments}}}} for n, (name, arguments) in
     enumerate([('memory_search', {{'query': {word!r}}}),
                ('memory_get', {{'path': 'private/plan.md'}}),
                ('memory_get', {{'path': '../{key}/private/plan.md'}}),
                ('memory_forget', {{'path': '../{key}/private/plan.md',
                                   'expected_revision': 'absent'}}),
                ('memory_upsert', {{'path': '../{key}/private/plan.md', 'content': 'x',
                                   'expected_revision': 'absent'}})])]
mcp = subprocess.run(['amux', 'mcp'], input=''.join(json.dumps(r) + '\\n' for r in requests),
                     capture_output=True, text=True)
print(json.dumps({{'tried': tried, 'own': own, 'unset': unset.returncode,
                  'mcp': mcp.stdout.splitlines()}}))
"""
    seen = answer(start(host, scripted(place, PYTHON, body), user=alice.name, principal="ann"))
    assert {code for code, _, _ in seen["tried"]} == {4}, seen["tried"]
    assert seen["unset"] in {4, 5}
    assert len(seen["mcp"]) == 6
    for _, stdout, _ in (*seen["tried"], *seen["own"]):
        assert word not in stdout
    assert all(word not in line.replace(f'"{word}"', "") for line in seen["mcp"])
    kept = (host.home / "memory" / "users" / key / "private" / "plan.md").read_text()
    assert kept == word


def test_the_agents_socket_and_credential_open_nothing_but_memory(
    host: Host, place: Path, alice: Account
) -> None:
    body = """
import socket
connection = json.load(open(os.environ['AMUX_CONNECTION']))
path = connection['url'].removeprefix('unix:')
def call(method, target, token=connection['token'], body='{}'):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        one.sendall((f'{method} {target} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n'
                     f'Authorization: Bearer {token}\\r\\nContent-Type: application/json\\r\\n'
                     f'Amux-Memory-Binding: {os.environ["AMUX_MEMORY_BINDING"]}\\r\\n'
                     f'Content-Length: {len(body)}\\r\\n\\r\\n{body}').encode())
        answer = b''
        while chunk := one.recv(65536): answer += chunk
    return int(answer.split()[1])
print(json.dumps({
    'capability': call('GET', '/v1/memory/capability'),
    'launch': call('PUT', '/v1/launches/mine', body='{"principal": "ben", "binding": null}'),
    'end': call('DELETE', '/v1/launches/mine'),
    'config': call('GET', '/v1/system/config'),
    'set': call('PUT', '/v1/system/config', body='{"memory.enabled": false}'),
    'forged': call('GET', '/v1/memory/capability', token='amux_user_x_y'),
}))
"""
    seen = answer(start(host, scripted(place, PYTHON, body), user=alice.name, principal="ann"))
    assert seen.pop("capability") == 200
    assert all(status in {401, 403, 404} for status in seen.values()), seen


def test_an_account_serves_one_principal_and_says_whom(
    host: Host, place: Path, alice: Account
) -> None:
    program = scripted(place, PYTHON, "print('{}')")
    assert answer(start(host, program, user=alice.name, principal="ann")) == {}
    before = set((host.home / "identity" / "launches").iterdir())
    with pytest.raises(UidTaken, match="serves Principal ann"):
        start(host, program, user=alice.name, principal="ben")
    assert set((host.home / "identity" / "launches").iterdir()) == before
    assert list(host.runs.iterdir()) == []


def test_a_launch_that_came_to_nothing_keeps_no_claim_on_an_account(place: Path) -> None:
    program = scripted(place, PYTHON, "print('{}')")
    missing = ProvidedFile(source=place / "nosuch", target=".secret")
    # A home of its own: the claim that stands outlives the account, whose uid comes back.
    with isolated_host() as host, accounts.account() as carol:
        with pytest.raises(NotProvided):
            start(host, program, user=carol.name, principal="ann", provide=(missing,))
        # The next one ran as carol for ben, who may have left something, so that claim stands.
        assert answer(start(host, program, user=carol.name, principal="ben")) == {}
        with pytest.raises(UidTaken, match="serves Principal ben"):
            start(host, program, user=carol.name, principal="ann")


def test_without_memory_an_account_and_the_services_home_are_kept_apart_just_the_same(
    place: Path, alice: Account
) -> None:
    """What an agent can read from files does not depend on whether the Hub answers."""
    program = scripted(place, PYTHON, "print(json.dumps('AMUX_CLI' in os.environ))")
    with isolated_host() as host:
        stop_hub(host.home)
        away = {"start_hub": False}
        run = start(host, program, user=alice.name, principal="ann", **away)
        assert answer(run) is False
        assert run.report.unbound is not None
        with pytest.raises(UidTaken, match="serves Principal ann"):
            start(host, program, user=alice.name, principal="ben", **away)
        with pytest.raises(IsolationRefused, match="--private-home"):
            start(host, program, principal="ben", **away)
        private = start(host, program, principal="ben", private_home=place / "home", **away)
        assert private.wait(SECONDS) is not None


def test_a_hostile_tmpdir_of_the_service_is_neither_used_nor_passed_on(
    host: Host, place: Path, alice: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = place / "tmp"
    theirs.mkdir()
    theirs.chmod(0o1777)
    os.chown(theirs, alice.uid, alice.gid)
    for name in ("TMPDIR", "TEMP", "TMP", "TMUX_TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(theirs))
    seen = answer(start(host, scripted(place, PYTHON, INSIDE), user=alice.name, principal="ann"))
    assert str(theirs) not in json.dumps(seen["environment"])
    assert list(theirs.iterdir()) == []


def test_under_policy_principal_the_services_own_account_has_its_own_memory_only(
    host: Host, place: Path
) -> None:
    program = scripted(
        place,
        PYTHON,
        "print(json.dumps([os.environ.get('AMUX_MEMORY_BINDING'), os.environ['HOME']]))",
    )
    with pytest.raises(IsolationRefused, match="--private-home"):
        start(host, program, principal="ann")
    private = place / "private"
    run = start(host, program, principal="ann", private_home=private)
    assert run.wait(SECONDS) is not None
    assert run.report.isolation == "private-home (weak)"
    assert run.report.binding == "principal:ann"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_run_keeps_its_path_over_resumes_and_is_gone_between_them(
    host: Host, place: Path, alice: Account
) -> None:
    body = """
os.mkdir(os.environ['HOME'] + '/.seen') if not os.path.exists(os.environ['HOME'] + '/.seen') else 0
print(json.dumps([os.environ['AMUX_CLI'], os.environ['AMUX_MEMORY_BINDING'],
                  [word for word in sys.argv if 'MEMORY.md' in word]]))
"""
    program = scripted(place, PYTHON, body)
    run = start(host, program, user=alice.name, principal="ann")
    first = answer(run)
    assert list(host.runs.iterdir()) == []
    again = answer(start(host, program, provider="", session=run.report.session))
    assert again == first
    assert list(host.runs.iterdir()) == []
    record = SessionStore(host.home).load(run.report.session)
    assert (record.state, record.user, record.binding) == (State.ENDED, alice.name, "principal:ann")


def test_what_a_crash_left_is_swept_by_the_next_start_and_a_live_run_is_not(
    host: Host, place: Path, alice: Account
) -> None:
    run = start(
        host, scripted(place, PYTHON, "sys.stdin.read(); print('{}')"), user=alice.name,
        principal="ann",
    )  # fmt: skip
    (living,) = host.runs.iterdir()
    left = host.runs / secrets.token_hex(16)
    (left / "work" / "deep").mkdir(parents=True)
    os.chown(left / "work", alice.uid, alice.gid)
    recover(host)
    assert list(host.runs.iterdir()) == [living]
    run.process.close_stdin()
    assert answer(run) == {}
    assert list(host.runs.iterdir()) == []


MOVES_IN = """
run = os.environ['AMUX_CONNECTION'].split('/agent-config/')[0]
os.rename(sys.argv[-1], run + '/work/shared')
print(json.dumps(run))
"""


def shared_by_root(place: Path) -> Path:
    """Make a folder of root's that anybody may move and nobody else may empty."""
    (place / "shared" / "protected").mkdir(parents=True)
    (place / "shared" / "protected" / "document").write_text("precious")
    (place / "shared").chmod(0o777)
    place.chmod(0o777)
    return place / "shared"


def test_a_folder_of_roots_that_the_agent_moved_into_its_run_is_kept_and_told(
    host: Host, place: Path, alice: Account
) -> None:
    program = scripted(place, PYTHON, MOVES_IN)
    shared = shared_by_root(place)
    heard: list[Notice] = []
    request = LaunchRequest(
        provider="pi",
        mode=Mode.PASSTHROUGH,
        environment=host.environ,
        executable=program,
        user=alice.name,
        principal="ann",
        arguments=(str(shared),),
    )
    run = launch(request, host, heard=heard.append)
    was = Path(answer(run))
    (aside,) = host.runs.iterdir()
    assert next(aside.rglob("document")).read_text() == "precious"
    assert not was.exists()
    warned = [text for notice in heard for text in notice.warnings if str(aside) in text]
    assert len(warned) == 1
    assert "shared" in warned[0]
    record = SessionStore(host.home).load(run.report.session)
    assert warned[0] in record.warnings
    assert record.state is State.ENDED
    shutil.rmtree(aside)


def test_what_was_cut_off_with_a_folder_of_roots_in_it_is_told_by_the_next_start(
    host: Host, place: Path, alice: Account
) -> None:
    store = SessionStore(host.home)
    left = host.runs / secrets.token_hex(16)
    (left / "work").mkdir(parents=True)
    shared_by_root(place).rename(left / "work" / "shared")
    os.chown(left / "work", alice.uid, alice.gid)
    record = SessionRecord(
        id=secrets.token_hex(8),
        provider="pi",
        state=State.RUNNING,
        run=str(left),
        marker=secrets.token_hex(16),
    )
    store.create(record)
    store.lock(record.id).close()
    told: list[str] = []
    (done,) = recover(host, told.append)
    (aside,) = host.runs.iterdir()
    assert next(aside.rglob("document")).read_text() == "precious"
    assert str(aside) in told[0]
    assert done.record.warnings == tuple(told)
    assert store.load(record.id).warnings == tuple(told)
    again: list[str] = []
    assert recover(host, again.append) == ()
    assert again == []
    shutil.rmtree(aside)


def test_files_are_provided_only_when_named_with_the_targets_owner(
    host: Host, place: Path, alice: Account
) -> None:
    key = host.home.parent / "auth.json"
    key.write_text('{"key": "of-alice"}')
    key.chmod(0o600)
    body = """
home = os.environ['HOME']
found = {}
for folder, _, names in os.walk(home):
    for name in names:
        info = os.stat(os.path.join(folder, name))
        found[os.path.relpath(os.path.join(folder, name), home)] = [info.st_uid, info.st_mode & 511]
print(json.dumps(found))
"""
    program = scripted(place, PYTHON, body)
    with accounts.account() as carol:
        assert answer(start(host, program, user=carol.name, principal="ann")) == {}
        provide = (ProvidedFile(source=key, target=".codex/auth.json"),)
        seen = answer(start(host, program, user=carol.name, principal="ann", provide=provide))
        assert seen == {".codex/auth.json": [carol.uid, 0o600]}
    with pytest.raises(BadRequest, match="--provide"):
        start(host, program, provide=provide)
    del alice


def test_an_agent_that_the_target_cannot_run_is_named_with_the_reason(
    host: Host, place: Path, alice: Account
) -> None:
    closed = place / "closed"
    closed.mkdir()
    program = scripted(closed, PYTHON, "print('{}')")
    closed.chmod(0o700)
    with pytest.raises(AgentNotFound, match=f"{alice.name}.*Permission denied"):
        start(host, program, user=alice.name, principal="ann")
    node = scripted(place, str(closed / "node"), "print('{}')")
    closed.joinpath("node").symlink_to(PYTHON)
    with pytest.raises(AgentNotFound, match=f"{closed}/node.*{alice.name}.*Permission denied"):
        start(host, node, user=alice.name, principal="ann")
    assert list(host.runs.iterdir()) == []


def test_an_account_without_a_login_shell_works_and_is_remarked(host: Host, place: Path) -> None:
    with accounts.account(options=("-s", "/usr/sbin/nologin")) as carol:
        run = start(host, scripted(place, PYTHON, INSIDE), user=carol.name, principal="ann")
        assert answer(run)["environment"]["SHELL"] == "/bin/sh"
        assert any("no login shell" in said for said in run.report.warnings)


def test_an_unusable_account_fails_before_anything_is_made(host: Host, place: Path) -> None:
    program = scripted(place, PYTHON, "print('{}')")
    sessions = SessionStore(host.home)
    before = sessions.list().records
    with pytest.raises(IdentityRefused):
        start(host, program, user="amux-no-such-user", principal="ann")
    with pytest.raises(IdentityRefused):
        start(host, program, user="root", principal="ann")
    assert sessions.list().records == before
    assert list(host.runs.iterdir()) == []


@pytest.fixture(name="closed")
def _closed(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


def test_a_folder_that_the_target_cannot_enter_is_refused_by_its_name(
    host: Host, alice: Account, place: Path, closed: Path
) -> None:
    with pytest.raises(BadRequest, match=rf"{closed} cannot be entered by user {alice.name}"):
        start(host, scripted(place, PYTHON, ""), user=alice.name, principal="ann", cwd=closed)


def test_all_that_a_command_of_another_user_prints_is_left_for_the_caller(
    host: Host, bob: Account
) -> None:
    run = launch(
        LaunchRequest(
            provider="generic",  # it plans plain lines in every mode
            mode=Mode.PASSTHROUGH,
            arguments=("/usr/bin/seq", "1", "100000"),
            environment=host.environ,
            user=bob.name,
        ),
        host,
    )
    assert run.process.stdout is not None
    with run.process.stdout as stdout:
        printed = stdout.read()
    status = run.wait(SECONDS)
    assert status is not None
    assert status.code == 0
    assert printed.split() == [str(number).encode() for number in range(1, 100001)]
