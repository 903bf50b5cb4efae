"""Run the Hub of AMUX_HOME: `python -m amux.hub.server [--ready-fd N] [--log FILE]`.

With `--ready-fd` the outcome of the start goes to that descriptor: `ready`, or one
sentence that says what has to be mended. `--placed` says how it was started, as in
`amux.hub.placement`, or to leave the control group of who started it. `--unasked` is for one that
is started again because it had ended: it does not start where the Hub was stopped on purpose.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from amux.hub import logs
from amux.hub.errors import AlreadyRunning, HubError
from amux.hub.home import open_home
from amux.hub.local import READY, TAKEN
from amux.hub.placement import LEAVE, Place, Placed, leave, placed
from amux.hub.residence import settle
from amux.hub.server.activation import take_handed
from amux.hub.server.process import Start, serve

HELD_STATUS: Final = 75
REFUSED_STATUS: Final = 78


def main() -> int:
    """Serve until stopped; 0 after a clean stop, 75 when another Hub holds the root, 78 else."""
    parser = argparse.ArgumentParser(prog="python -m amux.hub.server", allow_abbrev=False)
    parser.add_argument("--ready-fd", type=int, default=None)
    parser.add_argument("--log", type=Path, default=None)
    parser.add_argument("--placed", default="")
    parser.add_argument("--unasked", action="store_true")
    options = parser.parse_args()
    ready_fd: int | None = options.ready_fd
    os.umask(0o077)
    logs.start_logging(options.log)

    def tell(text: str) -> None:
        nonlocal ready_fd
        if ready_fd is not None:
            with contextlib.suppress(OSError):
                os.write(ready_fd, text.encode(errors="replace"))
            os.close(ready_fd)
            ready_fd = None

    try:
        home = open_home(os.environ)
        handed = take_handed(os.environ)
        place = Place(Placed.SOCKET) if handed else _place(options.placed, home)
        start = Start(
            home=home, environ=os.environ, place=place, unasked=options.unasked, handed=handed
        )
        serve(start, ready=lambda: tell(READY))
    except AlreadyRunning as error:
        tell(TAKEN + error.message)
        sys.stderr.write(f"amux: {error.message}\n")
        return HELD_STATUS
    except HubError as error:
        tell(error.message)
        sys.stderr.write(f"amux: {error.message}\n")
        return REFUSED_STATUS
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        message = f"the system refused: {error.strerror or type(error).__name__}{where}"
        tell(message)
        sys.stderr.write(f"amux: {message}\n")
        return REFUSED_STATUS
    return 0


def _place(said: str, home: Path) -> Place:
    if said == LEAVE:
        return leave(settle(home).text.rpartition(":")[0])
    return Place(placed(said))


if __name__ == "__main__":
    sys.exit(main())
