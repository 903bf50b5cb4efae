"""Start the local Hub again for the runs of this process, should it end under them unasked.

A Hub ends with the control group that it lives in, by the kernel's want of memory, or by a signal.
Whoever holds runs that use it waits for its end through a pidfd, and starts it again unless it was
stopped on purpose: `amux hub stop` leaves a mark, and a Hub that somebody serves by hand, or a
service manager, is that one's to stop. Of many who start it at once one does, as always.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HubError
from amux.hub.holder import process_start, read_holder
from amux.hub.home import RUN_MARKER
from amux.hub.residence import residence
from amux.hub.stopmark import is_marked
from amux.launcher.process.signal_safe import Alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amux.hub.holder import Holder
    from amux.launcher.host import Host

FIRST_SECONDS: Final = 1.0
LAST_SECONDS: Final = 60.0
"""Between two starts: none before the first, then twice as long each time, up to this."""
STEADY_SECONDS: Final = 60.0
"""A Hub that lived so long is started again at once."""
PACE_SECONDS: Final = 5.0
"""Between two looks for a Hub that somebody else has to start."""


def start_again(home: Path, environ: Mapping[str, str]) -> None:
    """Start the Hub unless one answers. Raises HubError and OSError."""
    # Imported here: a launch that finds the Hub running needs none of it, and starts sooner.
    from amux.hub import config  # noqa: PLC0415
    from amux.hub.local import ensure_running  # noqa: PLC0415

    if config.load(home).memory_enabled:
        ensure_running(home, environ, unasked=True)


class HubKeeper:
    """Keeps the Hub of each home alive while a run of this process uses it."""

    def __init__(
        self,
        *,
        start: Callable[[Path, Mapping[str, str]], None] = start_again,
        first: float = FIRST_SECONDS,
        last: float = LAST_SECONDS,
        pace: float = PACE_SECONDS,
    ) -> None:
        self._start = start
        self._first = first
        self._last = last
        self._pace = pace
        self._alone = Alone()
        self._kept: dict[str, _Home] = {}

    def keep(self, launch: str, host: Host, warn: Callable[[str], None] = lambda _: None) -> None:
        """Keep the host's Hub alive for this launch; `warn` hears why it cannot be started."""
        if RUN_MARKER in host.environ:
            return  # it would end with the run around this one
        added: list[_Home] = []

        def add() -> None:
            kept = next((one for one in self._kept.values() if one.path == host.home), None)
            if kept is None:
                kept = _Home(host.home, host.environ)
                added.append(kept)
            kept.warn[launch] = warn
            self._kept[launch] = kept

        self._alone.do(add)
        for kept in added:
            threading.Thread(target=self._run, args=(kept,), name="amux-hub", daemon=True).start()

    def let_go(self, launch: str) -> None:
        """Keep it alive for this launch no longer."""

        def remove() -> None:
            kept = self._kept.pop(launch, None)
            if kept is not None:
                del kept.warn[launch]
                if not kept.warn:
                    kept.end()

        self._alone.do(remove)

    def _run(self, kept: _Home) -> None:
        last: Holder | None = None
        pause, refused = 0.0, ""
        try:
            while not kept.wait(0):
                holder = read_holder(kept.path)
                if holder is not None:
                    last, since = holder, time.monotonic()
                    kept.wait_for_end(holder)
                    if time.monotonic() - since >= STEADY_SECONDS:
                        pause = 0.0
                elif not kept.lacks(last):
                    kept.wait(self._pace)
                elif not kept.wait(self._before(last, pause)) and read_holder(kept.path) is None:
                    pause = min(max(2 * pause, self._first), self._last)
                    refused = self._try(kept, refused)
        finally:
            # Whatever ended this thread: nobody may count on it, or tell it anything, any more.
            self._alone.do(lambda: self._forget(kept))
            kept.close()

    def _forget(self, kept: _Home) -> None:
        self._kept = {launch: one for launch, one in self._kept.items() if one is not kept}

    def _before(self, last: Holder | None, pause: float) -> float:
        """Return how long to wait before a start: a service manager has its turn first."""
        return pause if last is None or last.on_demand else max(pause, self._first)

    def _try(self, kept: _Home, refused: str) -> str:
        """Start it once; return why that failed, which people are told once."""
        try:
            self._start(kept.path, kept.environ)
        except (HubError, OSError) as error:
            message = str(error)
            if message != refused and not is_marked(kept.path):
                for warn in tuple(kept.warn.values()):
                    warn(f"the Hub ended, and starting it again failed: {message}")
            return message
        return ""


class _Home:
    """One home whose Hub is kept alive, and who hears of it."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.path = path
        self.environ = environ
        self.warn: dict[str, Callable[[str], None]] = {}
        self._folder = residence(path).text.rpartition(":")[0]
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def lacks(self, last: Holder | None) -> bool:
        """Say whether this home is without a Hub that should run; `last` is the one that ended."""
        try:
            if residence(self.path).text.rpartition(":")[0] != self._folder:
                return False  # moved away, and something else in its place
        except HubError:
            return False
        if is_marked(self.path):
            return False
        clean = read_holder(self.path, living=False) is None
        return last is None or last.on_demand or not clean

    def wait(self, seconds: float) -> bool:
        """Wait so long; say whether nobody needs the Hub any more."""
        poll = select.poll()
        poll.register(self._over, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def wait_for_end(self, holder: Holder) -> None:
        """Wait until the Hub's process is gone, or nobody needs it any more."""
        try:
            process = os.pidfd_open(holder.pid)
        except ProcessLookupError:
            return
        except OSError:  # no descriptor is left
            self.wait(PACE_SECONDS)
            return
        try:
            poll = select.poll()
            poll.register(self._over, select.POLLIN)
            poll.register(process, select.POLLIN)
            # The descriptor holds one process; only now is it sure that it is the right one.
            if process_start(holder.pid) == holder.start:
                poll.poll()
        finally:
            os.close(process)

    def end(self) -> None:
        """Say that nobody needs the Hub any more."""
        os.eventfd_write(self._over, 1)

    def close(self) -> None:
        """Give back what waiting took."""
        os.close(self._over)


HUBS: Final = HubKeeper()
