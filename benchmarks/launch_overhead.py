"""Measure what supervision costs, on a scripted agent: python -m benchmarks.launch_overhead.

added time   from the call until the agent's first answer, through the Python API (warm: the
             supervisor is open), less the same with subprocess.Popen alone; medians
memory       proportional set size (PSS) of all shims and of the supervisor's growth, per session
idle CPU     of supervisor and shims together, while nobody speaks
stop         of all sessions at once, until nothing of them is left
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.launcher.request import LaunchRequest
from amux.launcher.supervisor import Session, Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterable

ADDED_MS: Final = 60.0
PSS_MIB: Final = 12.0
ROUNDS: Final = 30
IDLE_SECONDS: Final = 10.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
SCRIPT: Final = Path(__file__).parents[1] / "fixtures" / "scripted_agent.py"
AGENT: Final = (sys.executable, "-I", "-S", str(SCRIPT), "--plain")
ENVIRONMENT: Final = {"PATH": os.defpath, "HOME": "/nonexistent"}


def bare() -> float:
    """Start, ask and answer once with subprocess alone; return milliseconds to the answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        AGENT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        process.stdout.readline()
        took = time.perf_counter() - began
        process.stdin.close()
    return took * 1000


def supervised(supervisor: Supervisor) -> tuple[float, float]:
    """Do the same through the supervisor; return milliseconds to the answer, and to stop."""
    began = time.perf_counter()
    session = start(supervisor)
    session.send_line("hello")
    session.receive_line(deadline=60)
    answered = time.perf_counter()
    session.stop()
    return (answered - began) * 1000, (time.perf_counter() - answered) * 1000


def start(supervisor: Supervisor) -> Session:
    """Launch one agent."""
    return supervisor.launch(
        LaunchRequest(provider="generic", arguments=AGENT, environment=ENVIRONMENT)
    )


def pss_kib(pids: Iterable[int]) -> int:
    """Return the proportional set size of some processes, in KiB."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that some processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def shims(supervisor: Supervisor, sessions: list[Session]) -> list[int]:
    """Return the pids of the sessions' shims."""
    records = [supervisor.record(session.id) for session in sessions]
    return [one.pid for record in records for one in record.processes if one.role == "shim"]


def measure(sessions: int) -> dict[str, float]:
    """Measure everything and return it by name."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {"AMUX_HOME": f"{folder}/amux", "AMUX_RUNS": f"{folder}/runs"}
        with Supervisor(environ=environ) as supervisor:
            bare(), supervised(supervisor)
            plain: list[float] = []
            ours: list[tuple[float, float]] = []
            for _ in range(ROUNDS):  # in turns, so that both see the same machine
                plain.append(bare())
                ours.append(supervised(supervisor))
            before = pss_kib([os.getpid()])
            began = time.perf_counter()
            with ThreadPoolExecutor(max_workers=8) as pool:
                running = list(pool.map(lambda _: start(supervisor), range(sessions)))
            started = time.perf_counter() - began
            pids = shims(supervisor, running)
            memory = pss_kib(pids) + pss_kib([os.getpid()]) - before
            cpu = cpu_seconds([os.getpid(), *pids])
            time.sleep(IDLE_SECONDS)
            idle = cpu_seconds([os.getpid(), *pids]) - cpu
            began = time.perf_counter()
            supervisor.close()
            stopped = time.perf_counter() - began
    return {
        "bare_ms": statistics.median(plain),
        "supervised_ms": statistics.median(took for took, _ in ours),
        "added_ms": statistics.median(took for took, _ in ours) - statistics.median(plain),
        "stop_one_ms": statistics.median(took for _, took in ours),
        "sessions": sessions,
        "start_all_s": started,
        "pss_mib_per_session": memory / 1024 / sessions,
        "idle_cpu_percent": 100 * idle / IDLE_SECONDS,
        "stop_all_s": stopped,
    }


def main() -> int:
    """Print the figures; with --check end with 1 where one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    figures = measure(options.sessions)
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=1))
    over = figures["added_ms"] > ADDED_MS or figures["pss_mib_per_session"] > PSS_MIB
    return 1 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
