"""Time that an isolated launch adds to a plain one, and the bytes that it copies.

Both start the same scripted agent with memory bound, through the same function, in turn. Needs
root: it makes an account and removes it again.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

from amux.materializer import onefile
from fixtures import accounts
from fixtures.isolated import answer, isolated_host, scripted, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.run import Run

PAIRS: Final = 40
LIMIT_MS: Final = 40.0
PYTHON: Final = "/usr/bin/python3"
BODY: Final = """
if os.getuid():
    print(sum(os.path.getsize(os.environ[name]) for name in ('AMUX_CLI', 'AMUX_CONNECTION')))
"""


def main() -> int:
    """Measure, print, and fail where the median is above the limit."""
    with (
        accounts.reachable_folder() as folder,
        accounts.account() as target,
        isolated_host() as host,
    ):
        program = scripted(folder, PYTHON, BODY)
        plain, apart = _kinds(host, program, target.name)
        # What the agent's home holds is read by a child that is the target: the dearer case.
        for home, owner in ((target.home, target.uid), (host.home.parent, 0)):
            settings = home / ".pi" / "agent" / "settings.json"
            settings.parent.mkdir(parents=True)
            settings.write_text("{}")
            for path in (settings, settings.parent, settings.parent.parent):
                os.chown(path, owner, -1)
        end(plain())
        copied = answer(apart())  # from now on the interpreter is known
        started: dict[str, list[float]] = {"plain": [], "isolated": []}
        whole: dict[str, list[float]] = {"plain": [], "isolated": []}
        for _ in range(PAIRS):
            for name, kind in (("plain", plain), ("isolated", apart)):
                before = time.perf_counter()
                run = kind()
                started[name].append(time.perf_counter() - before)
                end(run)
                whole[name].append(time.perf_counter() - before)
    print(f"{PAIRS} pairs, in turn; milliseconds, median (90th percentile)")
    added = 0.0
    for what, times in (("until the agent runs", started), ("until it is removed", whole)):
        for name, values in times.items():
            print(f"  {what:22} {name:9} {_ms(statistics.median(values)):7.1f}", end=" ")
            print(f"({_ms(statistics.quantiles(values, n=10)[-1]):.1f})")
        pairs = zip(times["plain"], times["isolated"], strict=True)
        one = _ms(statistics.median(apart - plain for plain, apart in pairs))
        print(f"  {what:22} added     {one:7.1f}  ratio ", end="")
        added = max(added, one)
        print(f"{statistics.median(times['isolated']) / statistics.median(times['plain']):.2f}")
    print(
        f"bytes copied per isolated launch: {copied} (the command itself: {len(onefile.build())})"
    )
    return 0 if added <= LIMIT_MS else 1


def end(run: Run) -> None:
    """Wait until the agent has ended and its run is removed."""
    if run.process.stdout is not None:
        with run.process.stdout as stdout:
            stdout.read()
    run.wait(60)
    run.process.close_stdin()


def _kinds(host: Host, program: Path, user: str) -> tuple[Callable[[], Run], Callable[[], Run]]:
    return (
        lambda: start(host, program),
        lambda: start(host, program, user=user, principal="ann"),
    )


def _ms(seconds: float) -> float:
    return seconds * 1000


if __name__ == "__main__":
    sys.exit(main())
