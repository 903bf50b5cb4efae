"""Keep the leases of live runs renewed: one thread of this process for all of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from hub.errors import HubError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hub.client import HubClient

RENEW_SECONDS: Final = 3600.0
"""A lease lasts 24 hours, so a Hub may be away for most of a day before a run loses its own."""


class LeaseKeeper:
    """Renews each kept lease every `interval` seconds until it is let go."""

    def __init__(self, interval: float = RENEW_SECONDS) -> None:
        self._interval = interval
        self._changed = threading.Condition()
        self._due: dict[str, tuple[float, Callable[[], HubClient]]] = {}
        self._thread: threading.Thread | None = None

    def keep(self, launch: str, open_hub: Callable[[], HubClient]) -> None:
        """Renew this launch's lease from now on."""
        with self._changed:
            self._due[launch] = (time.monotonic() + self._interval, open_hub)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amux-leases", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def let_go(self, launch: str) -> None:
        """Stop renewing this launch's lease."""
        with self._changed:
            self._due.pop(launch, None)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                launch, (due, open_hub) = min(self._due.items(), key=lambda item: item[1][0])
                left = due - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._due[launch] = (time.monotonic() + self._interval, open_hub)
            self._renew(launch, open_hub)

    def _renew(self, launch: str, open_hub: Callable[[], HubClient]) -> None:
        """Renew once; a Hub that is away is asked again at the next turn."""
        try:
            with open_hub() as hub:
                hub.renew_launch(launch)
        except HubError:
            return


LEASES: Final = LeaseKeeper()
