"""Resolve the memory binding of a launch: once for a fresh session, from the record ever after.

A launch either holds a lease (binding, credential, expiry) or is unbound with a reason. There
is no third way: no fallback to `global`, and no local substitute for a Hub that is away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from amux.hub.errors import Forbidden, HubError, InvalidRequest, MemoryDisabled, Unavailable
from amux.launcher.errors import BadRequest
from amux.launcher.memory.hub import open_hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.hub.client import HubClient, LaunchGrant
    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.target import ResolvedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A delegated credential for one run. `token` is None where a resume found the Hub away."""

    launch: str
    binding: str
    principal: str | None
    token: str | None
    expires_at: int | None
    warning: str | None = None

    @classmethod
    def granted(cls, launch: str, opened: LaunchGrant) -> Self:
        """Return the lease that the Hub's answer to `launch` holds."""
        return cls(
            launch=launch,
            binding=opened.binding,
            principal=opened.principal,
            token=opened.token,
            expires_at=opened.expires_at,
        )


@dataclass(frozen=True, slots=True)
class Unbound:
    """No memory for this session, and why; `warning` says whether a person should look."""

    reason: str
    warning: bool


def bind(
    target: ResolvedTarget,
    request: LaunchRequest,
    host: Host,
    *,
    launch: str,
    warn: Callable[[str], None],
) -> Lease | Unbound:
    """Resolve the binding: from the Hub for a fresh session, from the record for a resumed one.

    `warn` hears what people should know of a Hub that was started for it.
    """
    capabilities = target.provider.capabilities
    if target.foreign == "":
        return Unbound(
            "which conversation goes on is picked on the agent's screen, so amux cannot know "
            "whether it is one of its own; it is resumed as it is, without memory: `amux resume "
            "SESSION` continues one with memory",
            warning=True,
        )
    if target.foreign is not None:
        return Unbound(
            f"native conversation {target.foreign} has no record of amux; it is resumed as it is, "
            "with whatever its own memory put into it",
            warning=True,
        )
    if target.stored is not None:
        if not target.stored.bound:
            return Unbound("the session began without memory and stays so", warning=False)
        return bind_stored(
            lambda: open_hub(request, host, warn),
            launch=launch,
            principal=target.stored.principal or None,
            binding=target.stored.binding,
        )
    if not capabilities.memory:
        lacking = "; ".join(capabilities.missing) or "memory"
        return Unbound(f"{target.provider.name} lacks: {lacking}", warning=False)
    return bind_fresh(
        lambda: open_hub(request, host, warn), launch=launch, principal=request.principal
    )


def bind_fresh(
    connect: Callable[[], HubClient], *, launch: str, principal: str | None
) -> Lease | Unbound:
    """Ask the Hub once which binding a new session gets.

    Memory that is switched off is an ordinary answer, unless the launch names a Principal;
    everything else that goes wrong is a warning, and the agent starts without memory. Raises
    BadRequest for a named Principal that the Hub does not know or does not allow: that is the
    caller's own mistake, and no agent should run for somebody else than was asked.
    """
    try:
        with connect() as hub:
            opened = hub.open_launch(launch, principal=principal, binding=None)
    except MemoryDisabled:
        off = "memory is switched off (memory.enabled is false)"
        return Unbound(off, warning=principal is not None)
    except (InvalidRequest, Forbidden) as error:
        if principal is None:
            return _not_bound(error)
        message = f"no launch for Principal {principal!r}: {error.message}"
        raise BadRequest(message) from error
    except HubError as error:
        return _not_bound(error)
    return Lease.granted(launch, opened)


def _not_bound(error: HubError) -> Unbound:
    return Unbound(f"memory could not be bound ({error.code}): {error.message}", warning=True)


def bind_stored(
    connect: Callable[[], HubClient], *, launch: str, principal: str | None, binding: str
) -> Lease:
    """Ask for a credential for the binding that the session's record holds.

    A Hub that is away or refuses leaves the session bound, without a credential: the frozen text
    goes to the agent all the same, and memory needs another resume.
    """
    try:
        with connect() as hub:
            opened = hub.open_launch(launch, principal=principal, binding=binding)
    except HubError as error:
        what = "the Hub is away" if isinstance(error, Unavailable) else error.code
        return Lease(
            launch=launch,
            binding=binding,
            principal=principal,
            token=None,
            expires_at=None,
            warning=(
                f"no credential for {binding} ({what}: {error.message}); the session keeps its "
                "text, its memory calls fail until it is resumed again"
            ),
        )
    return Lease.granted(launch, opened)
