"""Whose memory a launch may get: an account serves one Principal, and files need no Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.hub.bindings import PRINCIPAL_PREFIX
from amux.launcher.errors import IsolationRefused, MemoryRequired
from amux.launcher.memory.binding import Lease, Unbound
from amux.launcher.memory.hub import own_principal
from amux.materializer.tenancy import claim, release

if TYPE_CHECKING:
    import contextlib

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.target import ResolvedTarget
    from amux.materializer.values import Identity
    from amux.providers.base import Sighting


def check_access(
    target: ResolvedTarget,
    lease: Lease,
    request: LaunchRequest,
    host: Host,
    unclaim: contextlib.ExitStack,
) -> None:
    """Refuse a launch that could reach another Principal's memory around the Hub.

    An account serves one Principal (UidTaken); `unclaim` takes back a claim that is new. Under
    policy `principal`, an agent that can read AMUX_HOME runs for the account's own Principal only,
    or in a private home, which is weak.
    """
    if lease.principal is None:
        return
    if target.identity is not None:
        _claim(host, unclaim, target.identity, lease.principal)
        return
    private = request.private_home or (target.stored and target.stored.private_home)
    if not lease.binding.startswith(PRINCIPAL_PREFIX) or private:
        return
    _refuse_another(lease.principal, own_principal(host), host)


def check_required(request: LaunchRequest, bound: Lease | Unbound) -> None:
    """Refuse a launch that demands memory and would be without."""
    if not request.require_memory:
        return
    lacking = bound.reason if isinstance(bound, Unbound) else None
    if isinstance(bound, Lease):
        lacking = bound.warning
    if lacking is not None:
        message = f"{lacking}; this launch requires memory, so the agent was not started"
        raise MemoryRequired(message)


def check_continued(request: LaunchRequest, seen: tuple[Sighting, ...]) -> None:
    """Refuse a launch that demands memory where the conversation went on without amux, and shows.

    `seen` is what was written into it since amux's last run.
    """
    wrong = next((one.contradicts for one in seen if one.contradicts), None)
    if wrong is not None and request.require_memory:
        message = f"{wrong}; this launch requires memory, so the agent was not started"
        raise MemoryRequired(message)


def check_heard(request: LaunchRequest, heard: tuple[Sighting, ...]) -> tuple[Sighting, ...]:
    """Return it; refuse a launch that demands memory where the agent took no memory tools."""
    lacking = next((one.contradicts for one in heard if one.contradicts), None)
    if lacking is not None and request.require_memory:
        message = f"{lacking}; this launch requires memory, so it ended before its first turn"
        raise MemoryRequired(message)
    return heard


def check_unbound(
    target: ResolvedTarget, request: LaunchRequest, host: Host, unclaim: contextlib.ExitStack
) -> None:
    """Refuse the same for a launch without memory: files are in reach whatever the Hub says.

    Asked for a Principal by name, that is; and only a local home tells its Principals and policy
    without a Hub.
    """
    # Imported here: a bound launch needs none of it, and starts sooner.
    from amux.hub import config  # noqa: PLC0415
    from amux.hub.enrolment import remote_connection  # noqa: PLC0415
    from amux.hub.identity import PrincipalFile  # noqa: PLC0415

    if request.principal is None or target.stored is not None:
        return
    if remote_connection(host.home) is not None:
        return
    own = own_principal(host)
    found = PrincipalFile(host.home / "identity").current().resolve(request.principal)
    if found is None:
        return
    if target.identity is not None:
        _claim(host, unclaim, target.identity, found.id)
    elif not request.private_home and config.load(host.home).memory_isolation == "principal":
        _refuse_another(found.id, own, host)


def _claim(host: Host, unclaim: contextlib.ExitStack, identity: Identity, principal: str) -> None:
    """Let the account serve this Principal; a launch that never used the account takes it back."""
    registry = host.home / "accounts.json"
    if claim(registry, identity, principal):
        unclaim.callback(release, registry, identity, principal)


def _refuse_another(principal: str, own: str | None, host: Host) -> None:
    if principal == own:
        return
    from amux.hub.enrolment import remote_connection  # noqa: PLC0415  # only where it is refused

    remote = remote_connection(host.home)
    if own is None and remote is not None:
        message = (
            f"this home has no user credential of the Hub at {remote.url} that says which "
            "Principal your own account serves; let the Hub's operator run amux credential issue "
            f"--principal {principal}, then here once more, with that token: amux hub connect "
            f"{remote.url} --token-file FILE; or give the launch an account with --user"
        )
    else:
        message = (
            f"this launch for Principal {principal} would run as your own account, which "
            f"serves {own or 'no Principal'} and can read {host.home}; give it an account with "
            "--user, or accept weak isolation with --private-home"
        )
    raise IsolationRefused(message)
