"""The SDK's own transport, with what passes through it handed on to the supervisor."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STDOUT: Final = 1
BETWEEN_SDK_AND_CLI: Final = frozenset(
    {"control_request", "control_response", "control_cancel_request"}
)


class Relay(Transport):
    """Passes everything on; answers to the supervisor's own control requests go to it alone."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._asked: set[str] = set()

    async def ask(self, message: dict[str, Any]) -> None:
        """Send a control request of the supervisor's."""
        self._asked.add(str(message.get("request_id")))
        await self._inner.write(json.dumps(message) + "\n")

    async def connect(self) -> None:
        """Start the agent."""
        await self._inner.connect()

    async def write(self, data: str) -> None:
        """Send what the SDK says."""
        await self._inner.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what is for the SDK."""
        return self._read()

    async def close(self) -> None:
        """End the agent."""
        await self._inner.close()

    def is_ready(self) -> bool:
        """Say whether the agent can be written to."""
        ready: bool = self._inner.is_ready()
        return ready

    async def end_input(self) -> None:
        """Close the agent's input."""
        await self._inner.end_input()

    async def _read(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self._inner.read_messages():
            if self._is_answer(message):
                hand_on(message)
                continue
            if message.get("type") not in BETWEEN_SDK_AND_CLI:
                hand_on(message)
            yield message

    def _is_answer(self, message: dict[str, Any]) -> bool:
        response = message.get("response")
        if message.get("type") != "control_response" or not isinstance(response, dict):
            return False
        identity = str(response.get("request_id"))
        if identity not in self._asked:
            return False
        self._asked.discard(identity)
        return True


def hand_on(message: dict[str, Any]) -> None:
    """Write one line to the supervisor, whole."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    view = memoryview(data)
    while view:
        view = view[os.write(STDOUT, view) :]
