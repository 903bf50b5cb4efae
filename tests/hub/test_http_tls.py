"""A Hub over TLS: verification always on, Host checked, Runtimes of several networks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx
import pytest
import trustme
from click.testing import CliRunner

from amux.hub.client import HubClient
from amux.hub.connection import Connection, connection_path, load_connection
from amux.hub.enrolment import connect
from amux.hub.errors import Forbidden, HomeRefused, Unavailable
from amux.hub.holder import read_holder
from amux.hub.values import GetRequest, UpsertRequest
from amux.launcher.cli import command
from amux.launcher.errors import IsolationRefused
from amux.launcher.host import Host
from amux.launcher.memory.access import check_access
from amux.launcher.memory.binding import Lease
from amux.launcher.memory.hub import hub_client
from amux.launcher.request import LaunchRequest
from amux.launcher.target import AgentCommand, ResolvedTarget
from amux.providers.generic import GenericProvider
from fixtures.hubs import HubHome, new_home
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

# Two Runtimes, each in a network namespace of its own, and the Hub's in a third.
HUB_ADDRESS: Final = "10.79.0.1"
REMOTE_RUNTIME: Final = """
import json, sys
from pathlib import Path
from amux.hub.client import HubClient
from amux.hub.connection import load_connection
from amux.hub.values import GetRequest, UpsertRequest
connection, launch, revision = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with HubClient.from_file(connection) as runtime:
    grant = runtime.open_launch(launch)
from amux.hub.connection import Connection
base = load_connection(connection)
agent = HubClient(Connection(url=base.url, token=grant.token, ca_pem=base.ca_pem), binding="global")
note = f"by {launch}\\n"
written = agent.upsert(UpsertRequest(path="shared.md", content=note, expected_revision=revision))
print(json.dumps({"revision": written.revision, "addresses": sys.argv[4:]}))
"""


@dataclass(frozen=True, slots=True)
class Remote:
    """A Hub that listens with TLS, its address, and the authority that vouches for it."""

    hub: HubHome
    port: int
    ca_pem: str

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def connection(self, token: str) -> Connection:
        return Connection(url=self.url, token=token, ca_pem=self.ca_pem)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("tls")
    hub = _tls_home(folder, authority, "localhost", "127.0.0.1")
    hub.set("hub.listen", "0.0.0.0:0")
    hub.set("hub.names", "localhost,127.0.0.1")
    hub.start()
    try:
        holder = read_holder(hub.home)
        assert holder is not None
        port = int(holder.listen.rpartition(":")[2])
        yield Remote(hub, port, authority.cert_pem.bytes().decode())
    finally:
        hub.kill()


def test_two_runtimes_of_different_addresses_share_one_hub_over_tls(remote: Remote) -> None:
    identity = remote.hub.registry
    revision = "absent"
    for number in (2, 3):
        token = identity.credentials.issue("runtime", allowed=None).text
        transport = httpx.HTTPTransport(
            verify=ssl.create_default_context(cadata=remote.ca_pem),
            local_address=f"127.0.0.{number}",
        )
        with httpx.Client(base_url=remote.url, transport=transport) as runtime:
            opened = runtime.put(
                f"/v1/launches/r{number}",
                json={"principal": None, "binding": None},
                headers={"Authorization": f"Bearer {token}"},
            ).json()
        agent = HubClient(remote.connection(opened["token"]), binding=opened["binding"])
        with agent:
            request = UpsertRequest(
                path="shared.md", content=f"by {number}\n", expected_revision=revision
            )
            revision = agent.upsert(request).revision
            assert agent.get(GetRequest(path="shared.md")).text == f"by {number}\n"


def test_a_hub_of_an_unknown_authority_is_never_talked_to(remote: Remote) -> None:
    token = remote.hub.token("user")
    for ca_pem in (None, trustme.CA().cert_pem.bytes().decode()):
        connection = Connection(url=remote.url, token=token, ca_pem=ca_pem)
        with HubClient(connection) as client, pytest.raises(Unavailable, match="certificate"):
            client.health()


def test_a_hub_under_a_name_that_its_certificate_lacks_is_never_talked_to(remote: Remote) -> None:
    connection = Connection(
        url=f"https://127.0.0.2:{remote.port}", token=remote.hub.token("user"), ca_pem=remote.ca_pem
    )
    with HubClient(connection) as client, pytest.raises(Unavailable, match="certificate"):
        client.health()


def test_no_setting_of_the_environment_turns_verification_off(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with HubClient(remote.connection(remote.hub.token("user"))) as client:
        assert client.health().enabled is True


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.2", ""])
def test_over_tls_too_only_known_hosts_are_answered(remote: Remote, host: str) -> None:
    with _tls_channel(remote) as channel:
        request = f"GET /v1/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        channel.sendall(request.encode())
        assert channel.recv(65536).split(b" ", 2)[1] == b"421"


def test_bytes_without_tls_get_no_answer_and_stop_nobody(remote: Remote) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            channel = socket.create_connection(("127.0.0.1", remote.port), SECONDS)
            stack.enter_context(channel)
            if number % 2:
                channel.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with HubClient(remote.connection(remote.hub.token("user"))) as client:
            assert client.health().enabled is True
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP/" not in channel.recv(65536)


def test_a_thousand_connections_without_a_handshake_stop_nobody(remote: Remote) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(socket.create_connection(("127.0.0.1", remote.port), SECONDS))
        with HubClient(remote.connection(remote.hub.token("user"))) as client:
            assert client.health().enabled is True
        with remote.hub.client("user") as local:
            assert local.health().enabled is True


def test_old_tls_is_refused(remote: Remote) -> None:
    context = ssl.create_default_context(cadata=remote.ca_pem)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", remote.port), SECONDS) as plain,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_connect_enrols_a_home_with_the_remote_hub_and_disconnect_goes_back(
    remote: Remote, tmp_path: Path
) -> None:
    mine = new_home(tmp_path / "mine")
    token_file, ca_file = tmp_path / "token", tmp_path / "ca.pem"
    identity = remote.hub.registry
    token_file.write_text(identity.credentials.issue("runtime", allowed=None).text + "\n")
    ca_file.write_text(remote.ca_pem)
    base = ["hub", "connect", remote.url, "--token-file", str(token_file)]
    assert _amux(mine, *base).exit_code == 1
    assert not load_connection(connection_path(mine.home, "user")).remote
    done = _amux(mine, *base, "--ca", str(ca_file))
    assert done.exit_code == 0, done.output
    assert "Connected as runtime" in done.output
    assert not connection_path(mine.home, "user").exists()
    saved = load_connection(connection_path(mine.home, "runtime"))
    assert (saved.url, saved.ca_pem) == (remote.url, remote.ca_pem)
    assert connection_path(mine.home, "runtime").stat().st_mode & 0o777 == 0o600
    shown = _amux(mine, "hub", "status", "--json")
    assert json.loads(shown.output)["remote"] == remote.url
    assert "Disconnected" in _amux(mine, "hub", "disconnect").output
    assert not load_connection(connection_path(mine.home, "user")).remote


def test_a_home_of_a_remote_hub_does_nothing_for_a_hub_of_its_own(
    remote: Remote, tmp_path: Path
) -> None:
    mine = new_home(tmp_path / "mine")
    token = remote.hub.registry.credentials.issue("runtime", allowed=None)
    connect(mine.home, remote.connection(token.text))
    for words in (["principal", "add", "ann"], ["credential", "issue", "--principal", "ann"]):
        refused = _amux(mine, *words)
        assert refused.exit_code == 1
        assert f"this home uses the Hub at {remote.url}" in refused.output
        assert "amux hub disconnect" in refused.output
    assert mine.registry.principals.current().resolve("ann") is None
    refused = _amux(mine, "hub", "serve")
    assert refused.exit_code == 78
    assert f"this home uses the Hub at {remote.url}" in refused.output


def test_the_status_of_a_remote_hub_that_is_away_is_3(tmp_path: Path) -> None:
    mine = new_home(tmp_path / "mine")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"https://127.0.0.1:{free.getsockname()[1]}"
    connect(mine.home, Connection(url=url, token="amux_user_" + "0" * 16 + "_" + "s" * 43))
    done = _amux(mine, "hub", "status")
    assert done.exit_code == 3
    assert f"The Hub at {url} does not answer" in done.output
    shown = _amux(mine, "hub", "status", "--json")
    assert shown.exit_code == 3
    assert json.loads(shown.output)["running"] is False


def test_a_launch_with_a_users_credential_alone_says_which_one_it_needs(
    remote: Remote, tmp_path: Path
) -> None:
    mine = new_home(tmp_path / "mine")
    token = remote.hub.registry.credentials.issue("user", principal="alice")
    connect(mine.home, remote.connection(token.text))
    with pytest.raises(HomeRefused, match=r"needs one; .*--kind runtime .*amux hub connect https:"):
        hub_client(Host(home=mine.home, runs=tmp_path, environ={}))


def test_a_launch_with_a_runtimes_credential_alone_says_that_a_users_tells_whose_it_is(
    remote: Remote, tmp_path: Path
) -> None:
    mine = new_home(tmp_path / "mine")
    token = remote.hub.registry.credentials.issue("runtime", allowed=None)
    connect(mine.home, remote.connection(token.text))
    target = ResolvedTarget(
        provider=GenericProvider(),
        command=AgentCommand(argv=("/bin/true",), folders=()),
        version="",
        identity=None,
        home=str(tmp_path),
        cwd=str(tmp_path),
        environment={},
        arguments=(),
        stored=None,
        resume=None,
        foreign=None,
    )
    lease = Lease(
        launch="l", binding="principal:alice", principal="alice", token=None, expires_at=None
    )
    host = Host(home=mine.home, runs=tmp_path, environ={})
    with pytest.raises(
        IsolationRefused, match=r"no user credential .* issue --principal alice, .* hub connect"
    ):
        check_access(target, lease, LaunchRequest(provider="generic"), host, contextlib.ExitStack())


def test_connect_takes_no_token_that_the_hub_does_not_know(remote: Remote, tmp_path: Path) -> None:
    mine = new_home(tmp_path / "mine")
    (tmp_path / "ca.pem").write_text(remote.ca_pem)
    for text in ("amux_user_" + "0" * 16 + "_" + "s" * 43, "nonsense"):
        (tmp_path / "token").write_text(text)
        arguments = [remote.url, "--token-file", str(tmp_path / "token")]
        result = _amux(mine, "hub", "connect", *arguments, "--ca", str(tmp_path / "ca.pem"))
        assert result.exit_code == 1
        assert text not in result.output
    assert not load_connection(connection_path(mine.home, "runtime")).remote


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hub.listen": "127.0.0.1:0", "hub.tls_cert": ""}, "plain HTTP is never served"),
        ({"hub.listen": "0.0.0.0:0"}, "set hub.names"),
        ({"hub.listen": "127.0.0.1:0", "hub.tls_cert": "/nowhere.pem"}, "cannot use hub.tls_cert"),
        (
            {"hub.listen": "127.0.0.1:0", "hub.tls_key": "/nowhere.pem"},
            "cannot look at hub.tls_key",
        ),
    ],
)
def test_a_tls_setting_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, authority: trustme.CA, settings: dict[str, str], sentence: str
) -> None:
    hub = _tls_home(tmp_path, authority, "localhost")
    for key, value in settings.items():
        hub.set(key, value)
    with pytest.raises(AssertionError, match=sentence):
        hub.start()


def test_a_private_key_that_others_can_read_is_refused(
    tmp_path: Path, authority: trustme.CA
) -> None:
    hub = _tls_home(tmp_path, authority, "localhost")
    (tmp_path / "key.pem").chmod(0o644)
    hub.set("hub.listen", "127.0.0.1:0")
    with pytest.raises(AssertionError, match="open to others"):
        hub.start()


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1", "ftp://x", "https://", "https://u:p@h", "https://h/x", "unix:x", ""],
)
def test_only_https_and_unix_addresses_are_taken(url: str) -> None:
    with pytest.raises(HomeRefused):
        Connection(url=url, token="t")  # noqa: S106  # no token


def test_a_user_credential_opens_no_launch_over_tls(remote: Remote) -> None:
    with (
        HubClient(remote.connection(remote.hub.token("user"))) as client,
        pytest.raises(Forbidden),
    ):
        client.open_launch("mine")


@pytest.mark.root
def test_two_runtimes_in_network_namespaces_of_their_own_share_one_hub(
    tmp_path: Path, authority: trustme.CA
) -> None:
    ip = shutil.which("ip")
    assert ip is not None
    hub = _tls_home(tmp_path, authority, HUB_ADDRESS)
    hub.set("hub.listen", f"{HUB_ADDRESS}:8443")
    identity = hub.registry
    tag = f"amux{os.getpid()}"
    with _networks(ip, tag) as (center, first, second):
        hub.start(ip, "netns", "exec", center)
        try:
            revision = "absent"
            for number, network in enumerate((first, second)):
                token = identity.credentials.issue("runtime", allowed=None).text
                path = tmp_path / f"connection{number}.json"
                fields = {"schema": 1, "url": f"https://{HUB_ADDRESS}:8443", "token": token}
                path.write_text(
                    json.dumps({**fields, "ca_pem": authority.cert_pem.bytes().decode()})
                )
                path.chmod(0o600)
                done = subprocess.run(
                    [
                        ip,
                        "netns",
                        "exec",
                        network,
                        sys.executable,
                        "-c",
                        REMOTE_RUNTIME,
                        str(path),
                        f"net{number}",
                        revision,
                    ],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                revision = json.loads(done.stdout)["revision"]
            document = hub.home / "memory" / "global" / "shared.md"
            assert document.read_text() == "by net1\n"
        finally:
            hub.kill()


@contextlib.contextmanager
def _networks(ip: str, tag: str) -> Iterator[tuple[str, str, str]]:
    """Make a namespace for the Hub and two that reach it over a bridge, and take them away."""
    names = (f"{tag}h", f"{tag}a", f"{tag}b")

    def run(*arguments: str) -> None:
        subprocess.run([ip, *arguments], check=True, timeout=SECONDS, capture_output=True)

    with contextlib.ExitStack() as stack:
        for name in names:
            run("netns", "add", name)
            stack.callback(run, "netns", "del", name)
            run("-n", name, "link", "set", "lo", "up")
        center = names[0]
        run("-n", center, "link", "add", "br0", "type", "bridge")
        run("-n", center, "addr", "add", f"{HUB_ADDRESS}/24", "dev", "br0")
        run("-n", center, "link", "set", "br0", "up")
        for number, name in enumerate(names[1:], start=2):
            inner, outer = "up0", f"down{number}"
            run("-n", name, "link", "add", inner, "type", "veth", "peer", "name", outer)
            run("-n", name, "link", "set", outer, "netns", center)
            run("-n", center, "link", "set", outer, "master", "br0", "up")
            run("-n", name, "addr", "add", f"10.79.0.{number}/24", "dev", inner)
            run("-n", name, "link", "set", inner, "up")
        yield names


def _tls_home(folder: Path, authority: trustme.CA, *names: str) -> HubHome:
    certificate = authority.issue_cert(*names)
    key = folder / "key.pem"
    key.touch(mode=0o600)
    certificate.private_key_pem.write_to_path(key)
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    hub = new_home(folder / "h")
    hub.set("memory.enabled", "true")
    hub.set("hub.tls_key", str(key))
    hub.set("hub.tls_cert", str(folder / "cert.pem"))
    return hub


def _tls_channel(remote: Remote) -> ssl.SSLSocket:
    context = ssl.create_default_context(cadata=remote.ca_pem)
    plain = socket.create_connection(("127.0.0.1", remote.port), SECONDS)
    return context.wrap_socket(plain, server_hostname="localhost")


def _amux(hub: HubHome, *arguments: str) -> Result:
    environ = {name: None for name in os.environ if name.startswith("AMUX_")}
    return CliRunner().invoke(command, list(arguments), env={**environ, **hub.environ})
