"""What a caller may do: the checks before a request, and the calls besides the four verbs.

Checks come in this order, and the first that fails answers: authentication, actor,
binding, enabled; then request, path, limits, guard and revision (DESIGN section 6).
"""

from __future__ import annotations

import enum
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from hub import config
from hub.errors import (
    BindingMismatch,
    ConfigRefused,
    Forbidden,
    IdentityRefused,
    InvalidRequest,
    LimitExceeded,
    MemoryDisabled,
    StorageFailed,
)
from hub.identity import LEASE_SECONDS, Launch, is_principal_id
from hub.identity import token as tokens
from hub.identity.launches import renewed
from hub.values import GLOBAL_BINDING, PRINCIPAL_PREFIX, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hub.config import Settings, SettingValue
    from hub.identity import Caller, Principal, Registry
    from hub.values import (
        ForgetRequest,
        Forgotten,
        Fragment,
        GetRequest,
        SearchAnswer,
        SearchRequest,
        UpsertRequest,
        Written,
    )

MOST_LAUNCHES: Final = 10_000
ADMIN_KEY: Final = "memory.enabled"
_LAUNCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Door(enum.Enum):
    """The listening socket through which a call came."""

    PRIVATE = "private"
    AGENTS = "agents"
    TLS = "tls"


class Store(Protocol):
    """The four verbs of the engine, each within one scope."""

    def search(self, scope: Scope, request: SearchRequest) -> SearchAnswer:
        """Return documents that hold the query's terms."""

    def get(self, scope: Scope, request: GetRequest) -> Fragment:
        """Return a piece of one document."""

    def upsert(self, scope: Scope, request: UpsertRequest) -> Written:
        """Write one document."""

    def forget(self, scope: Scope, request: ForgetRequest) -> Forgotten:
        """Delete one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An opened launch: what it is bound to, and its new `agent` credential."""

    launch: str
    binding: str
    principal: str | None
    token: str | None = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingState:
    """One setting: the value in use, and the one in the file."""

    running: SettingValue
    configured: SettingValue


class HubService:
    """Decide about every call of one Hub; safe for many threads."""

    def __init__(
        self,
        home: Path,
        *,
        settings: Settings,
        registry: Registry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self._home = home
        self._clock = clock
        self._opening = threading.Lock()

    def authenticate(self, token: str | None, *, door: Door) -> Caller:
        """Return the caller. Raises Unauthenticated, and Forbidden for the wrong door."""
        caller = self.registry.authenticate(token)
        if door is Door.AGENTS and caller.kind != "agent":
            raise Forbidden("only the credential of a launch is accepted on this socket")
        return caller

    def scope(self, caller: Caller, binding: str | None) -> Scope:
        """Return the scope of a data call: the checks actor, binding and enabled."""
        scope = self._bound(caller, binding)
        if not self.settings.memory_enabled:
            raise MemoryDisabled(
                "memory is switched off on this Hub; its operator can run: "
                "amux system config set memory.enabled true"
            )
        return scope

    def binding(self, caller: Caller, binding: str | None) -> str | None:
        """Return the binding that the capability call shows, also while memory is off."""
        if caller.kind == "runtime":
            return None
        return self._bound(caller, binding).binding

    def open_launch(
        self, caller: Caller, launch_id: str, *, principal: str | None, binding: str | None
    ) -> Grant:
        """Open a launch, fresh or for a stored binding; a repeat rotates its credential."""
        self.check_runtime(caller)
        owner = self._owner(caller, principal, binding)
        with self._opening:
            old = self._own_lease(caller, launch_id)
            if binding is None and not self.settings.memory_enabled:
                raise MemoryDisabled("memory is switched off on this Hub: no new binding is given")
            _check_launch_id(launch_id)
            if old is None:
                self._check_count(caller)
            token = tokens.make("agent")
            lease = Launch(
                id=launch_id,
                runtime=caller.credential_id,
                principal=owner,
                binding=self._fresh(owner).binding if binding is None else binding,
                credential=token.id,
                digest=token.digest,
                expires=int(self._clock()) + LEASE_SECONDS,
            )
            self._save(lease)
        return _grant(lease, token.text)

    def renew_launch(self, caller: Caller, launch_id: str) -> Grant:
        """Give a launch of this runtime a full lease again. Raises Forbidden when it is over."""
        self.check_runtime(caller)
        with self._opening:
            old = self._own_lease(caller, launch_id)
            if old is None or old.expires <= self._clock():
                raise Forbidden("this launch is over or was never opened; open it again")
            lease = renewed(old, now=self._clock())
            self._save(lease)
        return _grant(lease, None)

    def end_launch(self, caller: Caller, launch_id: str) -> bool:
        """End a launch and its credential; False when there was none."""
        self.check_runtime(caller)
        with self._opening:
            if self._own_lease(caller, launch_id) is None:
                return False
            try:
                return self.registry.launches.end(launch_id)
            except OSError as error:
                raise StorageFailed("the lease could not be deleted durably") from error

    def sweep(self) -> int:
        """End the launches whose lease is over; return how many."""
        with self._opening:
            return self.registry.launches.sweep(now=self._clock())

    def states(self, caller: Caller) -> dict[str, SettingState]:
        """Return every setting for an `admin`, in use and configured."""
        self.check_admin(caller)
        try:
            configured = config.load(self._home).values()
        except ConfigRefused as error:
            raise StorageFailed("the Hub cannot read its configuration; see its log") from error
        return {
            key: SettingState(running=value, configured=configured[key])
            for key, value in self.settings.values().items()
        }

    def configure(self, caller: Caller, changes: Mapping[str, object]) -> dict[str, SettingState]:
        """Set `memory.enabled` in the file; every other key is local. Returns `states`."""
        self.check_admin(caller)
        for key in changes:
            if key != ADMIN_KEY:
                raise Forbidden(
                    f"only {ADMIN_KEY} can be set over HTTP; "
                    "the other settings are local: amux system config set"
                )
        value = changes.get(ADMIN_KEY)
        if not isinstance(value, bool):
            raise InvalidRequest(f'the body is {{"{ADMIN_KEY}": true}} or false')
        try:
            config.store_value(self._home, ADMIN_KEY, value)
        except ConfigRefused as error:
            raise StorageFailed("the Hub cannot write its configuration; see its log") from error
        return self.states(caller)

    def _bound(self, caller: Caller, binding: str | None) -> Scope:
        """Return the caller's scope under the policy, when the binding sent fits it."""
        if caller.kind not in {"user", "agent"}:
            raise Forbidden(f"a {caller.kind} credential gives no access to memory")
        if caller.launch is not None:
            if binding is None:
                raise BindingMismatch("a launch has to send its binding in Amux-Memory-Binding")
            if binding != caller.launch.binding:
                raise BindingMismatch("the binding sent is not the one of this launch")
        elif binding is not None and not _is_binding(binding):
            raise BindingMismatch("the binding sent is not one that a Hub gives")
        if binding is not None and binding != self._policy(caller.principal):
            raise BindingMismatch(
                "the binding does not fit this Hub's policy and your identity; "
                "start a new conversation"
            )
        return self._fresh(caller.principal)

    def _policy(self, principal: str | None) -> str | None:
        """Return the binding that the policy gives to this Principal, known or not."""
        if self.settings.memory_isolation == "none":
            return GLOBAL_BINDING
        return None if principal is None else Scope(principal).binding

    def _fresh(self, principal: str | None) -> Scope:
        """Return the scope that the policy gives to a Principal; never global by default."""
        if self.settings.memory_isolation == "none":
            return Scope()
        if principal is None:
            raise Forbidden("memory here is per Principal, and this call names and has none")
        if principal not in self._principals():
            raise Forbidden("memory here is per Principal, and the Hub no longer knows this one")
        return Scope(principal)

    def _owner(self, caller: Caller, name: str | None, binding: str | None) -> str | None:
        """Return the Principal of a launch; raise unless this runtime may act for it."""
        credential = caller.credential
        if credential is None:
            raise Forbidden("only a runtime credential opens launches")
        bound = None
        if binding is not None:
            if not _is_binding(binding):
                raise InvalidRequest("the binding is not one that a Hub gives")
            bound = binding.removeprefix(PRINCIPAL_PREFIX) if binding != GLOBAL_BINDING else None
        known = self._principals()
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
        try:
            found = self.registry.principals.current().resolve(name)
        except IdentityRefused as error:
            raise StorageFailed("the Hub cannot read its identity files; see its log") from error
        if found is not None:
            return found.id
        if any_principal:
            raise InvalidRequest(
                "no Principal of this Hub has that id or alias; "
                "see amux principal list, or add it with amux principal add"
            )
        raise Forbidden("this runtime may not open launches for that Principal")

    def _principals(self) -> Mapping[str, Principal]:
        try:
            return self.registry.principals.current().by_id
        except IdentityRefused as error:
            raise StorageFailed("the Hub cannot read its identity files; see its log") from error

    def _own_lease(self, caller: Caller, launch_id: str) -> Launch | None:
        """Return this runtime's lease; raise Forbidden for another living runtime's."""
        lease = self.registry.launches.find(launch_id)
        if lease is None or lease.runtime == caller.credential_id:
            return lease
        if lease.runtime in self.registry.credentials.current():
            raise Forbidden("this launch belongs to another runtime")
        return lease

    def _check_count(self, caller: Caller) -> None:
        count = self.registry.launches.count(caller.credential_id)
        if count >= MOST_LAUNCHES:
            raise LimitExceeded(
                f"this runtime has {count} open launches; end some of them first",
                limit="launches",
                maximum=MOST_LAUNCHES,
                size=count + 1,
            )

    def _save(self, lease: Launch) -> None:
        try:
            self.registry.launches.save(lease)
        except OSError as error:
            raise StorageFailed("the lease could not be stored") from error

    def check_runtime(self, caller: Caller) -> None:
        """Raise Forbidden unless the caller is a `runtime`."""
        if caller.kind != "runtime":
            raise Forbidden(f"a {caller.kind} credential cannot open, renew or end launches")

    def check_admin(self, caller: Caller) -> None:
        """Raise Forbidden unless the caller is an `admin`."""
        if caller.kind != "admin":
            raise Forbidden(f"a {caller.kind} credential gives no access to settings")


def _is_binding(text: str) -> bool:
    if text == GLOBAL_BINDING:
        return True
    return text.startswith(PRINCIPAL_PREFIX) and is_principal_id(
        text.removeprefix(PRINCIPAL_PREFIX)
    )


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
