"""The root of amux's errors. Each room has its family of them, in its own `errors` module."""

from __future__ import annotations

from typing import ClassVar


class AmuxError(Exception):
    """What amux raises on purpose; the message says what was found and what to do.

    `code` is stable. `retryable` says that the same call may succeed later with nothing changed:
    somebody else's work, a Hub or an agent that was not ready, a disk that was full.
    """

    code: ClassVar[str] = "amux"
    retryable: ClassVar[bool] = False
