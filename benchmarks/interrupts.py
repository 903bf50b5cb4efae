"""A signal at each point of a Runtime's work, and of `amux launch`: all ends, nothing is left.

    python -m benchmarks.interrupts [EVERY]

Runs `tests.launcher.interrupted` once for every EVERY-th of its points (default 50; 1 tries all,
which takes hours), with each handler and each signal in turn, and fails where one of them hangs,
leaves something or prints a trace.
"""

from __future__ import annotations

import itertools
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fixtures.hosts import running_host
from tests.launcher.agents_at_work import eventually
from tests.launcher.interrupted import interrupt, leftovers

if TYPE_CHECKING:
    from amux.launcher.host import Host

EVERY: Final = 50
WAYS: Final = ("close", "stop", "INT", "TERM")
ENDS: Final = {
    "INT": (0, 128 + signal.SIGINT),
    "TERM": (0, 128 + signal.SIGTERM, -signal.SIGTERM),
}
"""By its agent, by amux, and by the signal itself once there is no agent any more."""


def main() -> int:
    """Try the points, print what failed, and say how many held."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else EVERY
    with tempfile.TemporaryDirectory() as folder, running_host(Path(folder)) as host:
        whole = interrupt(host, WAYS[0], "0")
        count = int(whole.stdout.split()[0])
        tries = list(zip(itertools.cycle(WAYS), range(1, count + 1, every), strict=False))
        # One after the other: each looks at what is left of all that this home ran.
        wrong = sum(not held(host, *one) for one in tries)
    print(f"{len(tries) - wrong} of {len(tries)} interrupts ended all, of {count} points")
    return 1 if wrong else 0


def held(host: Host, way: str, point: int) -> bool:
    """Interrupt once; say whether all ended, and print it where not."""
    done = interrupt(host, way, str(point))
    folder = host.home.parent
    eventually(lambda: not leftovers(folder))
    left = leftovers(folder)
    fine = done.returncode in ENDS.get(way, (0,)) and "Traceback" not in done.stderr and not left
    if not fine:
        print(f"{way} at point {point}: {done.returncode} {left}\n{done.stdout}{done.stderr}")
    return fine


if __name__ == "__main__":
    sys.exit(main())
