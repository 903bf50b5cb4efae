"""Read evidence in what an agent says while it runs; end it where that contradicts the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.launcher.errors import AgentFailed, ChannelError, LaunchError
from amux.launcher.provider_call import held
from amux.providers.base import VERSION, Confirmed, Evidence, Sighting
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.providers.base import JsonObject, Provider


class Watcher:
    """Passes each message to the provider; what it shows is told once.

    `on_evidence` hears what is new, `on_sighting` a sighting, `on_contradiction`, once, what
    contradicts the launch: also a version that is not the one in `known`.
    """

    def __init__(
        self,
        provider: Provider,
        known: tuple[Evidence, ...],
        on_evidence: Callable[[Confirmed], None],
        on_contradiction: Callable[[str], None],
        on_sighting: Callable[[tuple[Sighting, ...]], None],
    ) -> None:
        self._version = {one.observed for one in known if one.control == VERSION}
        self._provider = provider
        self._known: set[Evidence | Sighting] = set(known)
        self._on_sighting = on_sighting
        self._on_evidence = on_evidence
        self._on_contradiction = on_contradiction
        self._over = False

    def __call__(self, message: JsonObject) -> None:
        """Look at one message; raise ChannelError, which ends the channel, where it is refused."""
        if self._over:
            return
        try:
            found = held(self._provider.on_message, tuple)(message)
            self._check_version(found)
            fresh = tuple(one for one in found if one not in self._known)
            if fresh:
                self._known.update(fresh)
                seen = tuple(one for one in fresh if isinstance(one, Sighting))
                evidence = tuple(one for one in fresh if isinstance(one, Evidence))
                if evidence:
                    self._on_evidence(Confirmed(evidence=evidence))
                if seen:
                    self._on_sighting(seen)
        except (ProviderError, LaunchError, OSError) as error:  # the last two from the record
            self._over = True
            self._on_contradiction(str(error))
            raise ChannelError(str(error)) from error

    def _check_version(self, found: tuple[Evidence | Sighting, ...]) -> None:
        """Raise AgentFailed where the agent says that it is another version than was launched."""
        said = {one.observed for one in found if one.control == VERSION}
        if self._version and said - self._version:
            message = (
                f"the agent says that it is {' '.join(said)}, and the launch asked and planned for "
                f"{' '.join(self._version)}; launch it again, or name the agent itself with "
                "--executable"
            )
            raise AgentFailed(message)
