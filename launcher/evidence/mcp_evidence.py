"""When what a run's MCP server tells goes into the report, the record and the warnings.

Before the first turn where the agent asks for its tools by then and somebody can wait (a stream);
later as it comes. A server that was never asked is told of once a turn is over, or at the end.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import LaunchError
from amux.launcher.evidence.mcp_reports import Asked, open_witness
from amux.launcher.provider_call import held
from amux.providers.base import Mode, Tools

if TYPE_CHECKING:
    from amux.launcher.evidence.mcp_reports import Witness
    from amux.launcher.evidence.notices import Notices
    from amux.launcher.memory.grant import Memory
    from amux.launcher.steps.attempt import Attempt
    from amux.providers.base import Sighting

LIST_SECONDS: Final = 10.0
"""How long a stream launch waits for the list, after the agent's own handshake."""


class Hearing:
    """One run's. Without a witness nothing is heard, and nothing is said of it."""

    def __init__(self, witness: Witness | None, *, waits: bool) -> None:
        self._witness = witness
        self._waits = waits
        self._notices: Notices | None = None
        self._telling = threading.Lock()
        self._said: tuple[Sighting, ...] = ()
        self._turns = 0

    def before(self) -> tuple[Sighting, ...]:
        """Return what is known before the first turn.

        Where the agent asks for the list by then, a list that was not asked for contradicts.
        """
        if self._witness is None:
            return ()
        asked = self._witness.wait(LIST_SECONDS) if self._waits else self._witness.asked
        if asked.listed or self._waits:
            self._said = asked.sightings()
        return self._said

    def begin(self, notices: Notices) -> None:
        """Tell from now on what is heard; the run's record is there."""
        if self._witness is not None:
            self._notices = notices
            self._tell(self._witness.tell(self._tell))

    def turn_over(self) -> None:
        """Say whether the agent has the tools: it should by now."""
        if self._witness is not None:
            self._turns = 1
            self._tell(self._witness.asked, final=True)

    def finish(self) -> None:
        """Stop listening, and say it where nothing was said."""
        if self._witness is not None:
            self._tell(self._witness.close(), final=True)

    def close(self) -> None:
        """Stop listening."""
        if self._witness is not None:
            self._witness.close()

    def _tell(self, asked: Asked, *, final: bool = False) -> None:
        """Tell what was not told before; that something is missing only where it is final."""
        with self._telling:
            if self._notices is None or not (asked.listed or final):
                return
            fresh = tuple(one for one in asked.sightings() if one not in self._said)
            self._said = asked.sightings()
            if fresh:
                seen = tuple(replace(one, turn=self._turns) for one in fresh)
                with contextlib.suppress(LaunchError, OSError):  # the record's
                    self._notices.tell(seen=seen)


def open_hearing(attempt: Attempt, memory: Memory | None, undo: contextlib.ExitStack) -> Hearing:
    """Listen in the run's folder, which is in place, where its agent gets MCP tools.

    An agent that only prints its help starts no server, and lacks none.
    """
    target = attempt.target
    converses = held(target.provider.opens_conversation, bool)(target.arguments)
    if memory is None or memory.frozen.tools is not Tools.MCP or not converses:
        return Hearing(None, waits=False)
    witness = open_witness(attempt.paths, target.identity)
    waits = target.provider.lists_tools_first and attempt.request.mode is Mode.STREAM
    hearing = Hearing(witness, waits=waits)
    undo.callback(hearing.close)
    return hearing
