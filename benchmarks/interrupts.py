"""A signal at each point of a Runtime's work, whose handler closes: all must end, nothing be left.

    python benchmarks/interrupts.py [EVERY]

Runs `tests.launcher.interrupted` once for every EVERY-th of its points (default 50; 1 tries all,
which takes an hour), with each handler in turn, and fails where one of them hangs or leaves
something.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fixtures.hosts import running_host

if TYPE_CHECKING:
    from launcher.host import Host

EVERY: Final = 50
HANDLERS: Final = ("close", "stop")
ROOT: Final = Path(__file__).parents[1]


def main() -> int:
    """Try the points, print what failed, and say how many held."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else EVERY
    with tempfile.TemporaryDirectory() as folder, running_host(Path(folder)) as host:
        whole = interrupted(host, HANDLERS[0], 0)
        count = int(whole.stdout.split()[0])
        points = range(1, count + 1, every)
        tries = list(zip(itertools.cycle(HANDLERS), points, strict=False))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda one: interrupted(host, *one), tries))
    failed = [(one, done) for one, done in zip(tries, found, strict=True) if done.returncode]
    for (handler, point), done in failed:
        print(f"{handler} at point {point}:\n{done.stdout}{done.stderr}")
    print(f"{len(tries) - len(failed)} of {len(tries)} interrupts ended all, of {count} points")
    return 1 if failed else 0


def interrupted(host: Host, handler: str, point: int) -> subprocess.CompletedProcess[str]:
    """Work once, with a signal at that point."""
    return subprocess.run(
        (sys.executable, "-m", "tests.launcher.interrupted", host.home.parent, handler, str(point)),
        cwd=ROOT,
        env={**host.environ, "AMUX_RUNS": str(host.runs)},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
