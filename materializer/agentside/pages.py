"""Long answers in pages of bounded size, continued by random tokens of this process.

A token stays good until it expires, so a page may be asked for again, and in any order.
"""

from __future__ import annotations

import os
import threading
import time

from amux.materializer.agentside.errors import Failure
from amux.materializer.agentside.streams import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 6 * 1024  # bytes of one frame with a tool's result
FRAME = 320  # bytes of them for what stands around the result's own fields
KEPT = 32  # tokens
LIFETIME = 300.0  # seconds
NOTICE = (
    "[amux: {shown} of {total} bytes shown. The answer goes on: call amux.result_continue with"
    ' {{"token": "{token}"}} and append its text.]'
)


class Pages:
    """The continuations that this process has given out; `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, str, int]] = {}

    def first(self, text: str) -> list[dict[str, object]]:
        """Return the content blocks of an answer's first page."""
        return self._page(text, 0)

    def following(self, token: object) -> list[dict[str, object]]:
        """Return the content blocks that `token` stands for, or raise `Failure`."""
        with self._lock:
            self._expire()
            kept = self._kept.get(token) if isinstance(token, str) else None
        if kept is None:
            raise Failure(
                "invalid_request",
                "This token is unknown or has expired (after five minutes): repeat the call that"
                " gave it.",
            )
        _, text, start = kept
        return self._page(text, start)

    def _page(self, text: str, start: int) -> list[dict[str, object]]:
        whole: list[dict[str, object]] = [_block(text[start:])]
        if fits(whole):
            return whole
        token = os.urandom(16).hex()
        total = len(text.encode())
        low, high = start + 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            page = [_block(text[start:middle]), _notice(total, total, token)]
            if fits(page):
                low = middle
            else:
                high = middle - 1
        cut = _between_escapes(text, start, low)
        with self._lock:
            self._expire()
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[token] = (self._clock(), text, cut)
        shown = len(text[:cut].encode())
        return [_block(text[start:cut]), _notice(shown, total, token)]

    def _expire(self) -> None:
        oldest = self._clock() - LIFETIME
        for token in [token for token, kept in self._kept.items() if kept[0] < oldest]:
            del self._kept[token]


def _between_escapes(text: str, start: int, cut: int) -> int:
    """Move a cut in JSON text back to where it parts no escape; `start` is such a place."""
    at = text.find("\\", start, cut)
    while at >= 0:
        end = at + (6 if text[at + 1 : at + 2] == "u" else 2)
        if end > cut:
            return at
        at = text.find("\\", end, cut)
    return cut


def _block(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _notice(shown: int, total: int, token: str) -> dict[str, object]:
    return _block(NOTICE.format(shown=shown, total=total, token=token))


def fits(content: list[dict[str, object]], structured: object = None) -> bool:
    """Tell whether a result fits the page, as it is sent."""
    return len(to_json({"content": content, "structuredContent": structured})) <= PAGE - FRAME
