"""One JSON object per line, to and from a running agent.

LineChannel (amux.launcher.channel.lines)      one text line per message
└── JsonLinesChannel                           one JSON object per line
    └── JsonRpcChannel (….channel.jsonrpc)     requests, answers, notifications

A thread reads the pipe, so every method may be called from any thread. Lines that are not JSON
objects are noise (a banner, a log line): skipped, kept in `noise`, and an error past a bound. A
line that begins like an object but is broken ends the channel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amux.launcher.channel.lines import NOISE_KEPT, SEND_DEADLINE, LineChannel
from amux.launcher.errors import ChannelError
from amux.launcher.kinds import expect, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amux.launcher.channel.context_query import Inquiry
    from amux.launcher.process.spawn import AgentProcess
    from amux.providers.base import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What a launch keeps to in later requests.

    `before` returns the parameters as they may be sent, `after` acts on a result.
    """

    before: Callable[[str, JsonObject], JsonObject]
    after: Callable[[str, JsonObject], None]


class JsonLinesChannel(LineChannel):
    """One JSON object per line.

    `controls` apply to every message that is sent from the moment that they are set; `watcher`
    sees every message that comes, on the reading thread; `inquiry` asks the agent in between, and
    takes its answers out.
    """

    def __init__(self, process: AgentProcess) -> None:
        self.controls: Controls | None = None
        self.watcher: Callable[[JsonObject], None] | None = None
        self.inquiry: Inquiry | None = None
        super().__init__(process)

    def send(self, message: JsonObject) -> None:
        """Send one JSON line; raise BadArguments for one that would undo a control."""
        expect("message", message, dict)
        self._write(dump(self._held(message)), SEND_DEADLINE)

    def send_line(self, line: str, *, deadline: float = SEND_DEADLINE) -> None:
        """Send one line; a JSON object is held to the controls as in `send`.

        Raises ChannelError for a line of a held channel that is no JSON: nothing can judge it.
        """
        expect("line", line, str)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            if self.controls is not None:
                raise ChannelError(f"the line cannot be read as JSON: {error}") from error
            message = None
        if isinstance(message, dict):
            line = dump(self._held(message)).decode().rstrip("\n")
        super().send_line(line, deadline=deadline)

    def receive(self, *, deadline: float) -> JsonObject:
        """Return the next JSON line; raise DeadlinePassed where none comes in time."""
        message: JsonObject = self._next(seconds("deadline", deadline))
        return message

    def put_back(self, messages: Sequence[JsonObject]) -> None:
        """Let messages that were received come next again, in the same order."""
        with self._changed:
            self._queue.extendleft((message, 0) for message in reversed(messages))
            self._changed.notify_all()

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        """Refuse: this channel has no requests."""
        del params, deadline
        raise ChannelError(f"this agent's channel has no requests, so {method} can't be sent")

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Refuse: this channel has no notifications."""
        del params
        raise ChannelError(f"this agent's channel has no notifications, so {method} can't be sent")

    def _accept(self, line: bytes) -> None:
        text = line.strip()
        if not text:
            return
        if not text.startswith(b"{"):
            self._skip(text)
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ChannelError(
                f"the agent sent a broken frame ({error}): {text[:NOISE_KEPT]!r}"
            ) from error
        self._take(message, len(text))

    def _take(self, message: JsonObject, size: int) -> None:
        if self.watcher is not None:
            self.watcher(message)
        if self.inquiry is None or not self.inquiry.came(message):
            self._put(message, size)

    def _held(self, message: JsonObject) -> JsonObject:
        """Return the message as the controls let it be sent."""
        if self.controls is not None:
            message = self.controls.before(str(message.get("type")), message)
        if self.inquiry is not None:
            self.inquiry.sent(message)
        return message


def dump(message: JsonObject) -> bytes:
    """Return the frame; raise ChannelError for what JSON cannot say."""
    try:
        try:
            return _encoded(message, ascii_only=False)
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can only escape
            return _encoded(message, ascii_only=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ChannelError(f"the message cannot be sent as JSON: {error}") from error


def _encoded(message: JsonObject, *, ascii_only: bool) -> bytes:
    text = json.dumps(message, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"
