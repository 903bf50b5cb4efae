"""Which conversation the agent's own arguments continue, where they do not name it by its id."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Final

from amux.launcher.provider_call import held
from amux.launcher.steps.read_files import read_facts
from amux.providers.base import Facts, NativeResume
from amux.providers.errors import ProviderFailed

if TYPE_CHECKING:
    from amux.launcher.session.store import SessionRecord, SessionStore
    from amux.materializer.values import Identity
    from amux.providers.base import AgentRequest, Provider

ROUNDS: Final = 8
"""How often a provider may ask for further files."""


def continued(
    provider: Provider, request: AgentRequest, named: NativeResume, identity: Identity | None
) -> NativeResume | None:
    """Return the conversation as its files tell; None where there is none, so that one is begun."""
    ask = held(provider.resolve_resume, NativeResume, tuple, NoneType)
    facts = Facts()
    for _ in range(ROUNDS):
        answer = ask(request, named, facts)
        if not isinstance(answer, tuple):
            return answer
        facts = Facts({**facts.files, **read_facts(answer, identity).files})
    raise ProviderFailed(f"the provider {provider.name} asked for files {ROUNDS} times")


def recorded(
    sessions: SessionStore, provider: Provider, found: NativeResume
) -> SessionRecord | None:
    """Return the record of a conversation under any of its names."""
    for name in (found.native_id, *found.aliases):
        record = sessions.by_native_id(provider.name, name)
        if record is not None:
            return record
    return None
