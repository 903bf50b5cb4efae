"""Read a request's body within bounds of size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from hub.errors import InvalidRequest, LimitExceeded, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

BODY_BYTES: Final = 512 * 1024
BODY_SECONDS: Final = 20.0
DRAIN_BYTES: Final = 1024 * 1024
DRAIN_SECONDS: Final = 2.0


class BodyReader:
    """Read bodies, and let go of every unfinished one when the Hub stops."""

    def __init__(self, *, seconds: float = BODY_SECONDS) -> None:
        self._seconds = seconds
        self._waiting: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read(self, request: Request, hold: Callable[[int], None]) -> bytes:
        """Return the whole body; `hold` is told of each part's size and may refuse it.

        Raises LimitExceeded over 512 KiB, InvalidRequest when it does not arrive in time,
        Unavailable when the Hub is stopping, starlette's ClientDisconnect when it is cut.
        """
        if self._stopping:
            raise Unavailable("the Hub is stopping")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > BODY_BYTES:
            raise _too_large(int(declared[:20]))
        request.state.taken = False
        try:
            async with asyncio.timeout(self._seconds) as bound:
                self._waiting.add(bound)
                try:
                    data = await _collect(request, hold)
                finally:
                    self._waiting.discard(bound)
        except TimeoutError as error:
            if self._stopping:
                raise Unavailable("the Hub is stopping") from error
            raise InvalidRequest(f"the body did not arrive in {self._seconds:g} seconds") from error
        request.state.taken = True
        return data

    async def drain(self, request: Request) -> bool:
        """Read and drop a body before a refusal, so that the client sees the answer.

        Returns False when the connection has to be closed instead: a body that is too large,
        or of unknown length, or was given up half way.
        """
        taken: bool | None = getattr(request.state, "taken", None)
        if taken is not None:
            return taken
        declared = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers or not declared.isdecimal():
            return False
        if int(declared[:20]) > DRAIN_BYTES:
            return False
        try:
            async with asyncio.timeout(DRAIN_SECONDS) as bound:
                self._waiting.add(bound)
                try:
                    async for _ in request.stream():
                        pass
                finally:
                    self._waiting.discard(bound)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """End every wait for a body now."""
        self._stopping = True
        for bound in list(self._waiting):
            if not bound.expired():
                bound.reschedule(0)


async def _collect(request: Request, hold: Callable[[int], None]) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        hold(len(part))
        if len(parts) > BODY_BYTES:
            raise _too_large(len(parts))
    return bytes(parts)


def _too_large(size: int) -> LimitExceeded:
    return LimitExceeded(
        f"the request body has more than {BODY_BYTES} bytes",
        limit="request_body",
        maximum=BODY_BYTES,
        size=size,
    )
