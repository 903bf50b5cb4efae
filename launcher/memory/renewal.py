"""Keep the leases of live runs renewed: one thread of this process for all of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HubError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.hub.client import HubClient
    from amux.launcher.memory.binding import Lease

RENEW_SECONDS: Final = 3600.0
"""A lease lasts 24 hours, so a Hub may be away for most of a day before a run loses its own."""
RETRY_SECONDS: Final = 60.0
"""After a Hub that was away, or refused."""
PACE_SECONDS: Final = 15.0
"""How long after waking from sleep it is noticed at the latest."""
AGAIN: Final = (
    "the credential of this run's memory had ended at the Hub; it was renewed and holds again"
)


def since_boot() -> float:
    """Return seconds by a clock that nobody sets and that counts the time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class _Kept:
    """One lease that is renewed, and what its people were told last."""

    lease: Lease
    open_hub: Callable[[], HubClient]
    warn: Callable[[str], None]
    due: float
    refused: str = ""


class LeaseKeeper:
    """Renews each kept lease every `interval` seconds until it is let go.

    What is due is told by a clock that counts sleep, and looked at every `pace` seconds: a lease
    at the Hub of another machine may be over when this one wakes.
    """

    def __init__(
        self,
        interval: float = RENEW_SECONDS,
        *,
        retry: float = RETRY_SECONDS,
        pace: float = PACE_SECONDS,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self._interval = interval
        self._retry = min(retry, interval)
        self._pace = pace
        self._clock = clock
        # Without a lock, since a run that ends lets go; see amux.launcher.process.signal_safe.
        self._kept: dict[str, _Kept] = {}
        self._added: SimpleQueue[None] = SimpleQueue()
        self._idle = deque((threading.Thread(target=self._run, name="amux-leases", daemon=True),))

    def keep(
        self,
        lease: Lease,
        open_hub: Callable[[], HubClient],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Renew this lease from now on; `warn` hears what people should know about it."""
        due = self._clock() + self._interval
        self._kept[lease.launch] = _Kept(lease, open_hub, warn, due)
        self._added.put(None)
        with contextlib.suppress(IndexError):
            self._idle.pop().start()

    def let_go(self, launch: str) -> None:
        """Stop renewing this launch's lease."""
        self._kept.pop(launch, None)

    def _run(self) -> None:
        while True:
            kept = min(tuple(self._kept.values()), key=lambda one: one.due, default=None)
            left = None if kept is None else kept.due - self._clock()
            if kept is not None and left is not None and left <= 0:
                kept.due = self._clock() + self._retry
                self._renew(kept)
                continue
            del kept  # what is let go meanwhile is not to be held here
            with contextlib.suppress(Empty):
                self._added.get(timeout=None if left is None else min(left, self._pace))

    def _renew(self, kept: _Kept) -> None:
        """Renew once, with the proof that the run is ours; say what went wrong for good."""
        lease = kept.lease
        try:
            with kept.open_hub() as hub:
                renewed = hub.renew_launch(
                    lease.launch,
                    token=lease.token,
                    principal=lease.principal,
                    binding=lease.binding,
                )
                kept.due = self._clock() + self._interval
                if self._kept.get(lease.launch) is not kept:
                    hub.end_launch(lease.launch)  # the run ended meanwhile
                    return
        except Unavailable:
            return
        except HubError as error:
            if error.message != kept.refused:
                kept.refused = error.message
                kept.warn(f"the credential of this run's memory is not renewed: {error.message}")
            return
        if renewed.reopened or kept.refused:
            kept.refused = ""
            kept.warn(AGAIN)


LEASES: Final = LeaseKeeper()
