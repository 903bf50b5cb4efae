"""Ask an agent on the launch's own channel what its conversation's context holds.

Once after the first turn of a run (of a resume, too), again after a compaction, and whenever
somebody wants to know: never before the first turn by itself, so that no launch waits, and only
while the agent is idle, so that no turn does. Whoever holds the channel sees neither question nor
answer.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import AgentFailed, ChannelError, DeadlinePassed
from amux.launcher.provider_call import held
from amux.providers.base import TurnEvent
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.providers.base import JsonObject, Provider, Sighting


IDLE_SECONDS: Final = 0.5
"""Without a turn, before it is asked by itself: a program sends its next message at once."""
QUEUED_SECONDS: Final = 5.0
"""In which an agent begins a turn for what was sent during the last, unless it took that along."""


class Inquiry:
    """One run's. Safe from any thread; `on_answer` hears each answer on the one that read it."""

    def __init__(  # noqa: PLR0913  # two are how long it waits, for tests
        self,
        provider: Provider,
        question: JsonObject,
        send: Callable[[JsonObject], None],
        on_answer: Callable[[tuple[Sighting, ...]], None],
        *,
        idle: float = IDLE_SECONDS,
        queued: float = QUEUED_SECONDS,
    ) -> None:
        self._moment = held(provider.turn_event, TurnEvent, NoneType)
        self._answered = held(provider.read_context, tuple, NoneType)
        self._question = question
        self._send = send
        self._on_answer = on_answer
        self._idle = idle
        self._begins = queued
        self._changed = threading.Condition()
        self._due = True
        self._wanted = False
        self._asked = False
        self._busy = False
        self._queued = False
        self._turns = 0
        self._answers = 0
        self._latest: tuple[Sighting, ...] = ()

    def sent(self, message: JsonObject) -> None:
        """Look at a message that is about to be sent to the agent."""
        if self._moment(message) is TurnEvent.BEGUN:
            with self._changed:
                self._queued = self._queued or self._busy
                self._busy = True
                self._changed.notify_all()

    def came(self, message: JsonObject) -> bool:
        """Look at a message of the agent's; say whether it answers this inquiry alone.

        Raises ChannelError where the provider cannot read it.
        """
        try:
            seen = self._answered(message) if self._asked else None
            moment = self._moment(message) if seen is None else None
        except ProviderError as error:
            raise ChannelError(str(error)) from error
        if seen is not None:
            self._hear(seen)
            return True
        with self._changed:
            if moment is TurnEvent.BEGUN:
                self._queued = self._queued and self._busy
                self._busy = True
            elif moment is TurnEvent.COMPACTED:
                self._due = True
            elif moment is TurnEvent.ENDED:
                self._turns += 1
                self._busy = False
                self._see_to_it()
            self._changed.notify_all()
        return False

    def ask(self, *, deadline: float) -> tuple[Sighting, ...]:
        """Ask now, or when the turn that is under way is over; return what was seen.

        Raises DeadlinePassed where no answer comes within `deadline` seconds.
        """
        with self._changed:
            before = self._answers
            self._wanted = True
            self._due = self._due or not self._asked  # a question that is out will do
            self._see_to_it()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._answers > before, deadline):
                raise DeadlinePassed(
                    f"the agent did not say within {deadline:g} s what its context holds"
                    f"{': a turn is under way' if self._busy else ''}"
                )
            return self._latest

    def _hear(self, seen: tuple[Sighting, ...]) -> None:
        with self._changed:
            self._asked = False
            self._latest = tuple(replace(one, turn=self._turns) for one in seen)
            latest = self._latest
        self._on_answer(latest)
        with self._changed:
            self._answers += 1
            self._wanted = self._wanted and self._due
            self._see_to_it()
            self._changed.notify_all()

    def _see_to_it(self) -> None:
        """Have it asked, on a thread of its own: the reading one must not wait for the agent."""
        if self._due and not (self._busy or self._asked):
            self._asked = True
            threading.Thread(target=self._put, name="amux-inquiry", daemon=True).start()

    def _put(self) -> None:
        with self._changed:
            # What was sent in the middle of a turn may be the next one.
            self._changed.wait_for(lambda: self._busy or not self._queued, self._begins)
            self._queued = self._queued and self._busy
            self._changed.wait_for(lambda: self._busy or self._wanted, self._idle)
            if self._busy:
                self._asked = False
                return
            self._due = self._wanted = False
        with contextlib.suppress(ChannelError, AgentFailed):  # the run's end, which others tell
            self._send(self._question)


def open_inquiry(
    provider: Provider,
    send: Callable[[JsonObject], None],
    on_answer: Callable[[tuple[Sighting, ...]], None],
) -> Inquiry | None:
    """Return the inquiry of a run over its channel; None for an agent that cannot be asked."""
    question = held(provider.context_request, dict, NoneType)()
    return None if question is None else Inquiry(provider, question, send, on_answer)
