"""Launches: a runtime opens, renews and ends them, each with a binding and a credential."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from amux.hub.bindings import GLOBAL_BINDING, PRINCIPAL_PREFIX
from amux.hub.errors import (
    BindingMismatch,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    MemoryDisabled,
    StorageFailed,
)
from amux.hub.identity import Launch
from amux.hub.identity import token as tokens
from amux.hub.policy import is_binding

if TYPE_CHECKING:
    from amux.hub.identity import Caller, Registry, Token
    from amux.hub.policy import Policy

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
    reopened: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a runtime knows of a run of its own: its credential, and what it is bound to."""

    token: str = field(repr=False)
    principal: str | None
    binding: str


class Leasing:
    """Open, renew and end the launches of one Hub; safe for many threads."""

    def __init__(self, policy: Policy, registry: Registry, *, enabled: bool) -> None:
        self._policy = policy
        self._registry = registry
        self._enabled = enabled
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
            bound = self._policy.fresh(owner).binding if binding is None else binding
            lease = self._lease(caller, launch_id, token, principal=owner, binding=bound)
            self._save(lease)
        return _grant(lease, token.text)

    def renew(self, caller: Caller, launch_id: str, *, proof: Proof | None = None) -> Grant:
        """Give a launch of this runtime a full lease again.

        One that is over, or that this Hub lost, is opened again with the credential that its
        run has, where the runtime shows that; else it is refused with Forbidden.
        """
        self.check_runtime(caller)
        book = self._registry.launches
        with self._lock:
            old = self._own_lease(caller, launch_id)
            living = old is not None and not book.over(old)
            if proof is None:
                if old is None or not living:
                    raise Forbidden("this launch is over or was never opened; open it again")
                lease = old
            else:
                lease = self._proven(caller, launch_id, old, proof)
            lease = book.renewed(replace(lease, runtime=caller.credential_id))
            self._save(lease)
        return _grant(lease, None, reopened=None if proof is None else not living)

    def _proven(self, caller: Caller, launch_id: str, old: Launch | None, proof: Proof) -> Launch:
        """Return the lease of a run whose credential the runtime knows."""
        token = tokens.parse(proof.token)
        if token is None or token.kind != "agent":
            raise InvalidRequest("token is not the credential of a launch")
        if old is not None:
            if token.id != old.credential or not tokens.matches(token, old.digest):
                raise Forbidden("this launch has another credential by now")
            return old
        _check_launch_id(launch_id)
        owner = self._owner(caller, proof.principal, proof.binding)
        if self._registry.launches.by_credential(token.id) is not None:
            raise Forbidden("this credential belongs to another launch")
        self._check_count(caller)
        return self._lease(caller, launch_id, token, principal=owner, binding=proof.binding)

    def _lease(
        self,
        caller: Caller,
        launch_id: str,
        token: Token,
        *,
        principal: str | None,
        binding: str,
    ) -> Launch:
        """Return a lease with a full term."""
        return self._registry.launches.renewed(
            Launch(
                id=launch_id,
                runtime=caller.credential_id,
                principal=principal,
                binding=binding,
                credential=token.id,
                digest=token.digest,
                expires=0,
                ends=0.0,
                boot="",
            )
        )

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
            return self._registry.launches.sweep()

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


def _grant(lease: Launch, token: str | None, *, reopened: bool | None = None) -> Grant:
    return Grant(
        launch=lease.id,
        binding=lease.binding,
        principal=lease.principal,
        token=token,
        expires_at=lease.expires,
        reopened=reopened,
    )
