"""Identity on a running Hub: leases, revocation at once, memory apart, nothing that leaks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from amux.hub.client import HubClient
from amux.hub.connection import Connection
from amux.hub.errors import (
    BindingMismatch,
    Forbidden,
    HubError,
    IdentityRefused,
    InvalidRequest,
    StorageFailed,
    Unauthenticated,
)
from amux.hub.values import GetRequest, SearchRequest, UpsertRequest
from amux.launcher.cli import command
from fixtures.hubs import HubHome, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTE = UpsertRequest(path="tea.md", content="green tea\n", expected_revision="absent")
READ = GetRequest(path="tea.md")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHome]:
    """Run a Hub for ann (also called "Ann Ä") and bob, each with a memory of their own."""
    with running(tmp_path_factory.mktemp("many") / "h", memory_isolation="principal") as made:
        made.registry.principals.add("ann", ("Ann Ä",))
        made.registry.principals.add("bob")
        yield made


def test_each_principal_sees_only_their_own_memory_through_every_actor(many: HubHome) -> None:
    ann = _user(many, "ann")
    bob = _user(many, "bob")
    with many.client("runtime") as runtime:
        grant = runtime.open_launch("of-ann", principal="Ann Ä")
        other = runtime.open_launch("of-bob", principal="bob")
    assert (grant.principal, grant.binding) == ("ann", "principal:ann")
    agent = many.agent(grant.token, grant.binding)
    written = agent.upsert(NOTE)
    assert ann.get(READ).revision == written.revision
    assert ann.search(SearchRequest(query="green")).matches[0].path == "tea.md"
    assert bob.get(READ).exists is False
    assert bob.search(SearchRequest(query="green")).matches == ()
    with pytest.raises(BindingMismatch):
        many.agent(other.token, grant.binding).get(READ)
    with pytest.raises(BindingMismatch):
        many.agent(grant.token, other.binding).get(READ)
    assert not (many.home / "memory" / "global" / "tea.md").exists()


def test_a_repeated_open_rotates_the_credential_and_an_end_takes_it_away(many: HubHome) -> None:
    with many.client("runtime") as runtime:
        first = runtime.open_launch("twice", principal="ann")
        second = runtime.open_launch("twice", principal="ann")
        assert (second.binding, second.launch) == (first.binding, first.launch)
        with pytest.raises(Unauthenticated):
            many.agent(first.token, first.binding).capability()
        assert many.agent(second.token, second.binding).capability().binding == "principal:ann"
        lease = runtime.renew_launch("twice")
        assert lease.expires_at >= second.expires_at
        assert many.agent(second.token, second.binding).capability().enabled
        runtime.end_launch("twice")
        runtime.end_launch("twice")
        with pytest.raises(Unauthenticated):
            many.agent(second.token, second.binding).capability()
        with pytest.raises(Forbidden, match="open it again"):
            runtime.renew_launch("twice")


def test_a_renewal_gives_no_credential(many: HubHome) -> None:
    token = many.token("runtime")
    many.call("PUT", "/v1/launches/plain", {"principal": "ann"}, token=token)
    reply = many.call("PUT", "/v1/launches/plain", {"renew": True}, token=token)
    assert set(reply.fields) == {"launch", "binding", "principal", "expires_at"}
    mixed = many.call("PUT", "/v1/launches/plain", {"renew": True, "principal": "ann"}, token=token)
    assert mixed.code == "invalid_request"


def test_a_local_revocation_acts_at_once_on_the_running_hub(many: HubHome) -> None:
    issued = many.registry.credentials.issue("runtime", allowed=("ann",))
    runtime = HubClient(Connection(url=f"unix:{many.private}", token=issued.text))
    grant = runtime.open_launch("doomed")
    assert grant.principal == "ann"
    agent = many.agent(grant.token, grant.binding)
    assert agent.capability().enabled
    result = _amux(many, "credential", "revoke", issued.id)
    assert result == f"Revoked {issued.id}.\n"
    for client in (runtime, agent):
        with pytest.raises(Unauthenticated):
            client.capability()


def test_no_runtime_touches_the_launches_of_another(many: HubHome) -> None:
    one, two = (
        HubClient(
            Connection(
                url=f"unix:{many.private}",
                token=many.registry.credentials.issue("runtime", allowed=None).text,
            )
        )
        for _ in range(2)
    )
    grant = one.open_launch("owned", principal="ann")
    for attempt in (
        lambda: two.open_launch("owned", principal="ann"),
        lambda: two.renew_launch("owned"),
        lambda: two.end_launch("owned"),
    ):
        with pytest.raises(Forbidden, match="another runtime"):
            attempt()
    assert many.agent(grant.token, grant.binding).capability().enabled


def test_a_limited_runtime_learns_nothing_about_other_principals(many: HubHome) -> None:
    limited = HubClient(
        Connection(
            url=f"unix:{many.private}",
            token=many.registry.credentials.issue("runtime", allowed=("ann",)).text,
        )
    )
    refusals = set()
    for name in ("bob", "nobody-here", "Ann Ö"):
        with pytest.raises(Forbidden) as caught:
            limited.open_launch("probe", principal=name)
        refusals.add(caught.value.message)
    assert len(refusals) == 1
    with (
        pytest.raises(InvalidRequest, match="amux principal add"),
        many.client("runtime") as any_one,
    ):
        any_one.open_launch("probe", principal="nobody-here")


@pytest.mark.parametrize("launch", ["", ".x", "a b", "a/b", "x" * 129, "%C3%A4", "%2e%2e", "a%00"])
def test_a_bad_launch_id_is_refused(many: HubHome, launch: str) -> None:
    reply = many.call(
        "PUT",
        f"/v1/launches/{launch}".replace(" ", "%20"),
        {"principal": "ann"},
        token=many.token("runtime"),
    )
    assert (reply.status, reply.code) in {(400, "invalid_request"), (404, "invalid_request")}


def test_a_damaged_identity_file_stops_calls_and_mending_it_is_enough(many: HubHome) -> None:
    path = many.home / "identity" / "credentials.json"
    good = path.read_bytes()
    with many.client("user") as user:
        path.write_bytes(good[: len(good) // 2])
        with pytest.raises(StorageFailed):
            user.health()
        path.write_bytes(good)
        assert user.health().enabled


def test_the_admin_switches_memory_for_the_next_start_and_sets_nothing_else(
    many: HubHome,
) -> None:
    admin = many.token("admin")
    for body in (
        {"memory.isolation": "none"},
        {"memory.enabled": False, "hub.listen": "0.0.0.0:1"},
        {"memory": {"enabled": False}},
    ):
        assert many.call("PUT", "/v1/system/config", body, token=admin).code == "forbidden"
    for odd in ({}, {"memory.enabled": "false"}, {"memory.enabled": None}):
        assert many.call("PUT", "/v1/system/config", odd, token=admin).code == "invalid_request"
    with many.client("admin") as client:
        changed = client.set_memory_enabled(False)
        assert changed["restart_needed"] is True
        assert many.client("user").health().enabled is True
        assert client.set_memory_enabled(True)["restart_needed"] is False
    assert "isolation = " in (many.home / "config.toml").read_text()


def test_nothing_that_was_sent_shows_in_a_log_an_error_a_listing_or_an_argument(
    tmp_path: Path,
) -> None:
    canary, place, asked = "canary-content-73", "canary-path-91", "canary-query-55"
    with running(tmp_path / "h") as hub:
        hub.registry.principals.add("ann")
        hub.registry.principals.add("bob")
        issued = _amux(hub, "credential", "issue", "--kind", "runtime", "--principal", "ann")
        user = _amux(hub, "credential", "issue", "--principal", "bob")
        secrets = [hub.token(role) for role in ("user", "runtime", "admin")]
        secrets += [issued.split()[0], user.split()[0]]
        with hub.client("runtime") as runtime:
            grant = runtime.open_launch("quiet")
        secrets.append(grant.token)
        errors: list[HubError] = []
        for token in [*secrets, secrets[0][:-1] + "x", "amux_user_" + "0" * 16 + "_" + "s" * 43]:
            client = HubClient(
                Connection(url=f"unix:{hub.private}", token=token), binding="principal:" + canary
            )
            errors += _refused(
                (client.upsert, UpsertRequest(path=place, content=canary, expected_revision="x")),
                (client.get, GetRequest(path=f"../{place}.md")),
                (client.search, SearchRequest(query=asked + " " * 600)),
                (client.open_launch, canary),
            )
            assert token not in repr(client.__dict__["_transport"])
        with hub.client("user") as known:
            known.upsert(
                UpsertRequest(path=f"{place}.md", content=canary, expected_revision="absent")
            )
            known.search(SearchRequest(query=asked))
        hub.call("POST", f"/v1/{secrets[0]}", {"token": secrets[1]}, token=secrets[2])
        hub.call("POST", "/v1/memory/get", f'{{"{secrets[3]}": 1}}'.encode(), token=secrets[0])
        listing = _amux(hub, "credential", "list", "--json") + _amux(hub, "credential", "list")
        listing += _amux(hub, "hub", "status", "--json") + _amux(hub, "system", "config", "get")
        assert hub.process is not None
        proc = Path(f"/proc/{hub.process.pid}")
        outside = (proc / "cmdline").read_text() + (proc / "environ").read_text()
        log = hub.log.read_text()
    assert log.count('"event": "call"') > 20
    assert len(errors) > 20
    shown = log + listing + outside + "".join(f"{error!r}{error.body()}" for error in errors)
    for token in secrets:
        assert token.split("_", 3)[3] not in shown
        assert token not in shown
    for text in (canary, place, asked):
        assert text not in log


def test_a_credential_without_its_principal_is_not_issued(many: HubHome) -> None:
    issue = many.registry.credentials.issue
    with pytest.raises(IdentityRefused):
        issue("user")
    with pytest.raises(IdentityRefused):
        issue("agent", principal="ann")
    with pytest.raises(IdentityRefused):
        issue("admin", principal="ann")


def _refused(*calls: tuple[Callable[[Any], object], object]) -> list[HubError]:
    """Make calls that have to be refused, and return how they were."""
    errors = []
    for call, argument in calls:
        try:
            call(argument)
        except HubError as error:
            errors.append(error)
    return errors


def _user(hub: HubHome, principal: str) -> HubClient:
    token = hub.registry.credentials.issue("user", principal=principal)
    return HubClient(Connection(url=f"unix:{hub.private}", token=token.text))


def _amux(hub: HubHome, *arguments: str) -> str:
    """Run a local command in this process and return its stdout and stderr."""
    environ = {name: None for name in os.environ if name.startswith("AMUX_")}
    result = CliRunner().invoke(command, list(arguments), env={**environ, **hub.environ})
    assert result.exit_code == 0, result.output
    return result.output
