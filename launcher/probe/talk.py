"""Take one turn with an agent on its own channel, and return what it finally said.

The demo and the probe use this; a Runtime supervisor speaks its agents' protocols itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from amux.launcher.errors import ChannelError, DeadlinePassed

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.providers.base import Channel

TURN_SECONDS: Final = 90.0


def take_turn(
    provider: str,
    channel: Channel,
    text: str,
    *,
    native_id: str | None,
    deadline: float = TURN_SECONDS,
) -> str:
    """Send `text` as the user and return the agent's last words of that turn.

    Raises ChannelError where the turn fails or does not end within `deadline` seconds.
    """
    if provider not in _TURNS:
        message = f"no way to take a turn with `{provider}` is known; known: {sorted(_TURNS)}"
        raise ChannelError(message)
    return _TURNS[provider](channel, text, native_id, time.monotonic() + deadline)


def _codex(channel: Channel, text: str, native_id: str | None, end: float) -> str:
    params = {"threadId": native_id, "input": [{"type": "text", "text": text}]}
    channel.request("turn/start", params, deadline=_left(end))
    said = ""
    while True:
        message = channel.receive(deadline=_left(end))
        body = message.get("params") or {}
        match message.get("method"):
            case "item/completed" if body.get("item", {}).get("type") == "agentMessage":
                said = body["item"].get("text", "")
            case "turn/completed" if body.get("threadId", native_id) == native_id:
                failure = body.get("turn", {}).get("error")
                if failure:
                    message_text = f"the turn failed: {failure}"
                    raise ChannelError(message_text)
                return said
            case _:
                pass


def _claude(channel: Channel, text: str, native_id: str | None, end: float) -> str:
    del native_id
    channel.send({"type": "user", "message": {"role": "user", "content": text}})
    while True:
        message = channel.receive(deadline=_left(end))
        if message.get("type") == "result":
            if message.get("is_error"):
                failure = f"the turn failed: {message.get('result') or message.get('subtype')}"
                raise ChannelError(failure)
            return str(message.get("result", ""))


def _pi(channel: Channel, text: str, native_id: str | None, end: float) -> str:
    del native_id
    channel.send({"type": "prompt", "message": text})
    while True:
        message = channel.receive(deadline=_left(end))
        if message.get("type") == "response" and message.get("success") is False:
            failure = f"the turn failed: {message.get('error')}"
            raise ChannelError(failure)
        if message.get("type") == "agent_end":
            return _last_text(message.get("messages") or [])


def _last_text(messages: list[dict[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            parts = message.get("content") or []
            return "".join(part.get("text", "") for part in parts if part.get("type") == "text")
    return ""


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        message = "the turn did not end in time"
        raise DeadlinePassed(message)
    return left


_TURNS: Final[dict[str, Callable[[Channel, str, str | None, float], str]]] = {
    "codex": _codex,
    "claude": _claude,
    "claude-sdk": _claude,
    "pi": _pi,
}
