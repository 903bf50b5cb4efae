"""Launches: a runtime opens, renews and ends them, each with a binding and a credential."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hub.bindings import GLOBAL_BINDING, PRINCIPAL_PREFIX
from hub.errors import (
    BindingMismatch,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    MemoryDisabled,
    StorageFailed,
)
from hub.identity import LEASE_SECONDS, Launch
from hub.identity import token as tokens
from hub.identity.launches import renewed
from hub.policy import is_binding

if TYPE_CHECKING:
    from collections.abc import Callable

    from hub.identity import Caller, Registry
    from hub.policy import Policy

MOST_LAUNCHES: Final = 10_000
_LAUNCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An opened launch: what it is bound to, and its new `agent` credential."""

    launch: str
    binding: str
    principal: str | None
    token: str | None = field(repr=False)
    expires_at: int


class Leasing:
    """Open, renew and end the launches of one Hub; safe for many threads."""

    def __init__(
        self, policy: Policy, registry: Registry, *, enabled: bool, clock: Callable[[], float]
    ) -> None:
        self._policy = policy
        self._registry = registry
        self._enabled = enabled
        self._clock = clock
        self._lock = threading.Lock()

    def open(
        self, caller: Caller, launch_id: str, *, principal: str | None, binding: str | None
    ) -> Grant:
        """Open a launch, fresh or for a stored binding; a repeat rotates its credential."""
        self.check_runtime(caller)
        owner = self._owner(caller, principal, binding)
        with self._lock:
            old = self._own_lease(caller, launch_id)
            if binding is None and not self._enabled:
                raise MemoryDisabled("memory is switched off on this Hub: no new binding is given")
            _check_launch_id(launch_id)
            if old is None:
                self._check_count(caller)
            token = tokens.make("agent")
            lease = Launch(
                id=launch_id,
                runtime=caller.credential_id,
                principal=owner,
                binding=self._policy.fresh(owner).binding if binding is None else binding,
                credential=token.id,
                digest=token.digest,
                expires=int(self._clock()) + LEASE_SECONDS,
            )
            self._save(lease)
        return _grant(lease, token.text)

    def renew(self, caller: Caller, launch_id: str) -> Grant:
        """Give a launch of this runtime a full lease again. Raises Forbidden when it is over."""
        self.check_runtime(caller)
        with self._lock:
            old = self._own_lease(caller, launch_id)
            if old is None or old.expires <= self._clock():
                raise Forbidden("this launch is over or was never opened; open it again")
            lease = renewed(old, now=self._clock())
            self._save(lease)
        return _grant(lease, None)

    def end(self, caller: Caller, launch_id: str) -> bool:
        """End a launch and its credential; False when there was none."""
        self.check_runtime(caller)
        with self._lock:
            if self._own_lease(caller, launch_id) is None:
                return False
            try:
                return self._registry.launches.end(launch_id)
            except OSError as error:
                raise StorageFailed("the lease could not be deleted durably") from error

    def sweep(self) -> int:
        """End the launches whose lease is over; return how many."""
        with self._lock:
            return self._registry.launches.sweep(now=self._clock())

    def check_runtime(self, caller: Caller) -> None:
        """Raise Forbidden unless the caller is a `runtime`."""
        if caller.kind != "runtime":
            raise Forbidden(f"a {caller.kind} credential cannot open, renew or end launches")

    def _owner(self, caller: Caller, name: str | None, binding: str | None) -> str | None:
        """Return the Principal of a launch; raise unless this runtime may act for it."""
        credential = caller.credential
        if credential is None:
            raise Forbidden("only a runtime credential opens launches")
        bound = None
        if binding is not None:
            if not is_binding(binding):
                raise InvalidRequest("the binding is not one that a Hub gives")
            bound = binding.removeprefix(PRINCIPAL_PREFIX) if binding != GLOBAL_BINDING else None
        known = self._policy.principals().by_id
        owner: str | None
        if name is not None:
            owner = self._named(name, any_principal=credential.allowed is None)
        elif bound is not None:
            owner = bound
        elif caller.principal is not None:
            owner = caller.principal
        else:
            allowed = credential.allowed or ()
            owner = allowed[0] if len(allowed) == 1 else None
        if owner is not None and (owner not in known or not credential.may_act_for(owner)):
            raise Forbidden("this runtime may not open launches for that Principal")
        if bound is not None and owner != bound:
            raise BindingMismatch("the stored binding belongs to another Principal")
        return owner

    def _named(self, name: str, *, any_principal: bool) -> str:
        found = self._policy.principals().resolve(name)
        if found is not None:
            return found.id
        if any_principal:
            raise InvalidRequest(
                "no Principal of this Hub has that id or alias; "
                "see amux principal list, or add it with amux principal add"
            )
        raise Forbidden("this runtime may not open launches for that Principal")

    def _own_lease(self, caller: Caller, launch_id: str) -> Launch | None:
        """Return this runtime's lease; raise Forbidden for another living runtime's."""
        lease = self._registry.launches.find(launch_id)
        if lease is None or lease.runtime == caller.credential_id:
            return lease
        if lease.runtime in self._registry.credentials.current():
            raise Forbidden("this launch belongs to another runtime")
        return lease

    def _check_count(self, caller: Caller) -> None:
        count = self._registry.launches.count(caller.credential_id)
        if count >= MOST_LAUNCHES:
            raise LimitExceeded(
                f"this runtime has {count} open launches; end some of them first",
                limit="launches",
                maximum=MOST_LAUNCHES,
                size=count + 1,
            )

    def _save(self, lease: Launch) -> None:
        try:
            self._registry.launches.save(lease)
        except OSError as error:
            raise StorageFailed("the lease could not be stored") from error


def _check_launch_id(launch_id: str) -> None:
    if _LAUNCH_ID.fullmatch(launch_id) is None:
        raise InvalidRequest(
            "a launch id is letters, digits and . _ - only, at most 128, beginning with a "
            "letter or digit"
        )


def _grant(lease: Launch, token: str | None) -> Grant:
    return Grant(
        launch=lease.id,
        binding=lease.binding,
        principal=lease.principal,
        token=token,
        expires_at=lease.expires,
    )
