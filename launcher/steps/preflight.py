"""Run a pre-flight: the same binary, briefly, to confirm native memory off before the agent starts.

An answer is remembered under the digest that the provider computed over everything it depends on,
so that the next launch with the same binary, settings, environment and folder need not ask again.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.launcher.channel.jsonlines import JsonLinesChannel
from amux.launcher.channel.jsonrpc import JsonRpcChannel
from amux.launcher.process.ending import end
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.launcher.provider_call import held
from amux.launcher.session.store import timestamp
from amux.launcher.steps.versions import is_itself
from amux.providers.base import Confirmed, Evidence, Framing, Shutdown

if TYPE_CHECKING:
    from pathlib import Path

    from amux.materializer.values import Identity
    from amux.providers.base import AgentRequest, Grant, Preflight, Provider

REMEMBERED: Final = 256
"""Answers that are kept; the oldest go first."""


@dataclass(frozen=True, slots=True)
class PreflightMemory:
    """What pre-flights answered, by digest, in one JSON file of ours."""

    path: Path

    def recall(self, digest: str) -> Confirmed | None:
        """Return the answer remembered under `digest`; its evidence says when it was asked."""
        found = self._load().get(digest)
        return None if found is None else _confirmed(found)

    def remember(self, digest: str, confirmed: Confirmed) -> None:
        """Keep an answer, durably enough for a cache: a lost one is asked for again."""
        known = self._load()
        known.pop(digest, None)
        now = timestamp()
        known[digest] = asdict(
            replace(
                confirmed,
                evidence=tuple(replace(one, asked=now) for one in confirmed.evidence),
            )
        )
        kept = dict(list(known.items())[-REMEMBERED:])
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(kept, file)
        fresh.replace(self.path)

    def _load(self) -> dict[str, object]:
        try:
            loaded = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return loaded if isinstance(loaded, dict) else {}


def run_preflight(  # noqa: PLR0913  # what a run needs, each by its own name
    step: Preflight,
    provider: Provider,
    request: AgentRequest,
    grant: Grant,
    *,
    identity: Identity | None,
    marker: str,
    memory: PreflightMemory,
) -> Confirmed:
    """Return what the agent answered, now or when it was asked the same before.

    Raises amux.providers.errors.NotConfirmed with the agent's own answer.
    """
    remember = step.remember if is_itself(request.command[-1]) else None
    if remember is not None:
        known = memory.recall(remember)
        if known is not None:
            return known
    ending = held(provider.shutdown, Shutdown)(request)
    process = spawn(
        SpawnRequest(
            argv=step.argv,
            environment={**request.environment, **dict(step.environment)},
            cwd=request.cwd,
            marker=marker,
            identity=identity,
        )
    )
    try:
        kind = JsonRpcChannel if step.framing is Framing.JSON_RPC else JsonLinesChannel
        confirmed = held(provider.confirm_preflight, Confirmed)(kind(process), request, grant)
    finally:
        end(process, ending)
    if remember is not None:
        memory.remember(remember, confirmed)
    return confirmed


def _confirmed(value: object) -> Confirmed | None:
    """Read a remembered answer; one of another shape (an older amux) is asked for again."""
    try:
        fields = dict(value)  # type: ignore[call-overload]
        return Confirmed(
            evidence=tuple(Evidence(**one) for one in fields["evidence"]),
            instructions=fields["instructions"],
            subagent_instructions=fields["subagent_instructions"],
            native_id=fields["native_id"],
            warnings=tuple(fields["warnings"]),
            version=fields["version"],
        )
    except (TypeError, ValueError, KeyError):
        return None
