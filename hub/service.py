"""What a caller may do: the checks before a request, and the settings for an `admin`.

Checks come in this order, and the first that fails answers: authentication, actor,
binding, enabled; then request, path, limits, guard and revision (docs/architecture.md).
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from amux.hub import config, logs
from amux.hub.enrolment import enrol_local
from amux.hub.errors import (
    ConfigRefused,
    Forbidden,
    InvalidRequest,
    LocalRefusal,
    MemoryDisabled,
    StorageFailed,
)
from amux.hub.leasing import Leasing
from amux.hub.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amux.hub.config import Settings, SettingValue
    from amux.hub.identity import Caller, Registry
    from amux.hub.values import (
        ForgetRequest,
        Forgotten,
        Fragment,
        GetRequest,
        Scope,
        SearchAnswer,
        SearchRequest,
        UpsertRequest,
        Written,
    )

ADMIN_KEY: Final = "memory.enabled"


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
    ) -> None:
        self.settings = settings
        self.registry = registry
        self._home = home
        self._policy = Policy(settings.memory_isolation, registry)
        self.leasing = Leasing(self._policy, registry, enabled=settings.memory_enabled)

    def authenticate(self, token: str | None, *, door: Door) -> Caller:
        """Return the caller. Raises Unauthenticated, and Forbidden for the wrong door."""
        caller = self.registry.authenticate(token)
        if door is Door.AGENTS and caller.kind != "agent":
            raise Forbidden("only the credential of a launch is accepted on this socket")
        return caller

    def heal(self) -> None:
        """Give the account that owns this home what it lost: who reached us here may read it."""
        try:
            enrol_local(self._home)
        except LocalRefusal as error:
            logs.event("not enrolled", level=logging.ERROR, reason=error.message)

    def scope(self, caller: Caller, binding: str | None) -> Scope:
        """Return the scope of a data call: the checks actor, binding and enabled."""
        scope = self._policy.bound(caller, binding)
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
        return self._policy.bound(caller, binding).binding

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

    def check_admin(self, caller: Caller) -> None:
        """Raise Forbidden unless the caller is an `admin`."""
        if caller.kind != "admin":
            raise Forbidden(f"a {caller.kind} credential gives no access to settings")
