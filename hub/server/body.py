"""Read a request's body within bounds of size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from amux.hub.errors import InvalidRequest, LimitExceeded, Unavailable
from amux.hub.server.incoming import Malformed, TooLarge
from amux.hub.server.protocol import CALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from amux.hub.server.protocol import Call

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
        request.state.begun = True
        try:
            async with asyncio.timeout(self._seconds) as bound:
                self._waiting.add(bound)
                try:
                    data = await _call(request).body(hold, most=BODY_BYTES)
                finally:
                    self._waiting.discard(bound)
        except TimeoutError as error:
            if self._stopping:
                raise Unavailable("the Hub is stopping") from error
            raise InvalidRequest(f"the body did not arrive in {self._seconds:g} seconds") from error
        except Malformed as error:
            raise InvalidRequest(f"the body is not one of HTTP: {error}") from error
        except TooLarge as error:
            request.state.begun = False
            raise _too_large(error.size) from error
        return data

    async def drain(self, request: Request) -> bool:
        """Read and drop a body before a refusal, so that the client sees the answer.

        Returns False when the connection has to be closed instead: a body that is too large,
        or of unknown length, or was given up half way.
        """
        if getattr(request.state, "begun", False):
            return await self._dropped(request, 0)
        return await self._dropped(request, DRAIN_BYTES)

    async def _dropped(self, request: Request, most: int) -> bool:
        try:
            async with asyncio.timeout(DRAIN_SECONDS) as bound:
                self._waiting.add(bound)
                try:
                    return await _call(request).drop(most)
                finally:
                    self._waiting.discard(bound)
        except (TimeoutError, ClientDisconnect, Malformed, TooLarge):
            return False

    def stop(self) -> None:
        """End every wait for a body now."""
        self._stopping = True
        for bound in list(self._waiting):
            if not bound.expired():
                bound.reschedule(0)


def _call(request: Request) -> Call:
    found: Call = request.scope["state"][CALL]
    return found


def _too_large(size: int) -> LimitExceeded:
    return LimitExceeded(
        f"the request body has more than {BODY_BYTES} bytes",
        limit="request_body",
        maximum=BODY_BYTES,
        size=size,
    )
