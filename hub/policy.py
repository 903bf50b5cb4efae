"""Whose memory a call works on: the scope that the policy gives, and the binding that fits it.

A caller names no scope. Missing or unknown identity under `principal` is refused, and is
never `global`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.hub.bindings import GLOBAL_BINDING, PRINCIPAL_PREFIX
from amux.hub.errors import BindingMismatch, Forbidden, IdentityRefused, StorageFailed
from amux.hub.identity import is_principal_id
from amux.hub.values import Scope

if TYPE_CHECKING:
    from amux.hub.config import Isolation
    from amux.hub.identity import Caller, Principals, Registry


class Policy:
    """`memory.isolation` of the running Hub, and the Principals that it knows now."""

    def __init__(self, isolation: Isolation, registry: Registry) -> None:
        self._isolation = isolation
        self._registry = registry

    def bound(self, caller: Caller, binding: str | None) -> Scope:
        """Return the caller's scope under the policy, when the binding sent fits it."""
        if caller.kind not in {"user", "agent"}:
            raise Forbidden(f"a {caller.kind} credential gives no access to memory")
        if caller.launch is not None:
            if binding is None:
                raise BindingMismatch("a launch has to send its binding in Amux-Memory-Binding")
            if binding != caller.launch.binding:
                raise BindingMismatch("the binding sent is not the one of this launch")
        elif binding is not None and not is_binding(binding):
            raise BindingMismatch("the binding sent is not one that a Hub gives")
        if binding is not None and binding != self._given(caller.principal):
            raise BindingMismatch(
                "the binding does not fit this Hub's policy and your identity; "
                "start a new conversation"
            )
        return self.fresh(caller.principal)

    def _given(self, principal: str | None) -> str | None:
        """Return the binding that the policy gives to this Principal, known or not."""
        if self._isolation == "none":
            return GLOBAL_BINDING
        return None if principal is None else Scope(principal).binding

    def fresh(self, principal: str | None) -> Scope:
        """Return the scope that the policy gives to a Principal; never global by default."""
        if self._isolation == "none":
            return Scope()
        if principal is None:
            raise Forbidden("memory here is per Principal, and this call names and has none")
        if principal not in self.principals().by_id:
            raise Forbidden("memory here is per Principal, and the Hub no longer knows this one")
        return Scope(principal)

    def principals(self) -> Principals:
        """Return the Principals that the Hub knows now. Raises StorageFailed."""
        try:
            return self._registry.principals.current()
        except IdentityRefused as error:
            raise StorageFailed("the Hub cannot read its identity files; see its log") from error


def is_binding(text: str) -> bool:
    """Say whether the text has the form of a binding."""
    if text == GLOBAL_BINDING:
        return True
    return text.startswith(PRINCIPAL_PREFIX) and is_principal_id(
        text.removeprefix(PRINCIPAL_PREFIX)
    )
