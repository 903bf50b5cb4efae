"""Keep the leases of live runs renewed: one thread of this process for all of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hub.errors import HubError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hub.client import HubClient
    from launcher.binding import Lease

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
        self._changed = threading.Condition()
        self._kept: dict[str, _Kept] = {}
        self._thread: threading.Thread | None = None

    def keep(
        self,
        lease: Lease,
        open_hub: Callable[[], HubClient],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Renew this lease from now on; `warn` hears what people should know about it."""
        with self._changed:
            due = self._clock() + self._interval
            self._kept[lease.launch] = _Kept(lease, open_hub, warn, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amux-leases", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def let_go(self, launch: str) -> None:
        """Stop renewing this launch's lease."""
        with self._changed:
            self._kept.pop(launch, None)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._kept:
                    self._changed.wait()
                kept = min(self._kept.values(), key=lambda one: one.due)
                left = kept.due - self._clock()
                if left > 0:
                    self._changed.wait(min(left, self._pace))
                    continue
                kept.due = self._clock() + self._retry
            self._renew(kept)

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
                with self._changed:
                    living = self._kept.get(lease.launch) is kept
                    kept.due = self._clock() + self._interval
                if not living:
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
