"""What happens to each thread that a person opens on a screen with a server beside it."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING

from amux.launcher.provider_call import held
from amux.launcher.steps.record import write_settled
from amux.providers.base import Confirmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.evidence.conversation import Conversation
    from amux.launcher.evidence.notices import Notices
    from amux.launcher.session.store import SessionStore
    from amux.launcher.steps.app_server import Server
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import AgentRequest, Grant


@dataclass(frozen=True, slots=True)
class Attendance:
    """Settles the threads of one run. `on_contradiction` ends the screen, and hears why."""

    attempt: Attempt
    sessions: SessionStore
    conversation: Conversation
    notices: Notices
    on_contradiction: Callable[[str], None]

    def attend(self, server: Server, agent: AgentRequest, grant: Grant) -> None:
        """Settle each thread that a person opens, until the server ends."""
        settle = held(self.attempt.target.provider.on_server_message, Confirmed, NoneType)
        server.attend(
            lambda message, settled: settle(server.channel, message, agent, grant, settled),
            self._on_evidence,
            self.on_contradiction,
        )

    def _on_evidence(self, confirmed: Confirmed) -> None:
        write_settled(self.sessions, self.attempt.record.id, confirmed)
        if confirmed.foreign:
            self._visited(confirmed.native_id or "")

    def _visited(self, native_id: str) -> None:
        """Tell what a conversation of others brings along.

        Where the launch demands memory, the run ends unless it shows what one of amux's would.
        """
        wrong = tuple(
            f"conversation {native_id}: {text}" for text in self.conversation.of_others(native_id)
        )
        self.notices.tell(warnings=wrong)
        if wrong and self.attempt.request.require_memory:
            self.on_contradiction(f"{wrong[0]}; this launch requires memory, so it was ended")
