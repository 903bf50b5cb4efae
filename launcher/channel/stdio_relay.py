"""Carry the JSON lines of a program that drives an agent through `amux launch`, and the agent's.

What the program writes is held as a supervisor's own messages are; what would undo a control of
the launch is answered in the agent's place and never reaches it. What the agent says is passed on
as it is, and seen.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import ChannelError
from amux.launcher.process.stdio import write_all
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.providers.base import JsonObject

LINE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one line of the agent's that is kept to be looked at; a longer one is only passed on."""
UNREADABLE: Final = "a message that amux cannot read as JSON was not passed on to the agent"


@dataclass(slots=True)
class _Lines:
    """Bytes that came so far, given out line by line."""

    rest: bytes = b""

    def take(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete by now, each with its end."""
        if b"\n" not in chunk:
            self.rest += chunk
            return []
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [line + b"\n" for line in lines]


class Driving:
    """The two directions between a program and the agent that it drives.

    `hold` returns a message as it may be sent, or raises a ProviderError; `refusal` returns what
    the agent would answer to one that was refused, None where it answers nothing; `watch` sees each
    of the agent's messages, `out` is the program's end. A direction may have a thread of its own.
    """

    def __init__(
        self,
        hold: Callable[[JsonObject], JsonObject],
        refusal: Callable[[JsonObject, str], JsonObject | None],
        watch: Callable[[JsonObject], None],
        *,
        out: int = 1,
    ) -> None:
        self._hold = hold
        self._refusal = refusal
        self._watch = watch
        self._out = out
        self._typed = _Lines()
        self._said = _Lines()
        self._writing = threading.Lock()

    def typed(self, chunk: bytes) -> bytes:
        """Return what of the program's bytes may go to the agent; with none, what was left."""
        lines = self._typed.take(chunk)
        if not chunk and self._typed.rest:
            lines, self._typed.rest = [self._typed.rest + b"\n"], b""
        return b"".join(self._held(line) for line in lines)

    def say(self, chunk: bytes) -> bool:
        """Pass the agent's bytes on, whole lines at a time; say whether the program listens."""
        lines = self._said.take(chunk)
        ready = b"".join(lines)
        if not chunk or len(self._said.rest) > LINE_LIMIT:
            ready, self._said.rest = ready + self._said.rest, b""
        if not self._write(ready):
            return False
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError, ChannelError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self._watch(message)
        return True

    def _held(self, line: bytes) -> bytes:
        if not line.strip():
            return line
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            _complain(UNREADABLE)
            return b""
        if not isinstance(message, dict):
            return line
        try:
            held = self._hold(message)
        except ProviderError as error:
            self._refuse(message, str(error))
            return b""
        # What was judged is what goes out: of two members with one name a reader takes one.
        return json.dumps(held, separators=(",", ":")).encode() + b"\n"

    def _refuse(self, message: JsonObject, reason: str) -> None:
        answer = self._refusal(message, reason)
        if answer is None:
            _complain(reason)
        else:
            self._write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")

    def _write(self, data: bytes) -> bool:
        """Write whole lines to the program, those of one direction after those of the other."""
        with self._writing:
            return write_all(self._out, data)


def _complain(reason: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"amux: {reason}\n")
        sys.stderr.flush()
