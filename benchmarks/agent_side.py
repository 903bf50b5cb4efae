"""What one call of an agent costs: `benchmarks/agent_side.py`.

In one run: `memory show` by the one file beside an interpreter that does nothing, and the
MCP server beside the same five tools on the `mcp` SDK, from its start to the answer to
`tools/list`, and in memory. The bounds are ratios, so that they hold on any machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer.onefile import INTERPRETER, build
from fixtures.hubs import running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS: Final = 31
SERVERS: Final = 7
MOST_SHOW: Final = 5.0
MOST_START: Final = 0.25
MOST_MEMORY: Final = 0.5
PEER: Final = Path(__file__).parents[1] / "fixtures" / "sdk_server.py"
FRAMES: Final = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "amux.memory_get", "arguments": {"path": "MEMORY.md"}},
    },
)


def run(argv: list[str], environ: Mapping[str, str]) -> float:
    """Return the seconds that a command took."""
    begin = time.perf_counter()
    subprocess.run(argv, env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def serve(argv: list[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds from the start to the tool list, and the MiB held after one call."""
    begin = time.perf_counter()
    with subprocess.Popen(
        argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("no pipes")
        for frame in FRAMES[:3]:
            process.stdin.write(json.dumps(frame).encode() + b"\n")
        process.stdin.flush()
        until(process.stdout.readline, 2)
        seconds = time.perf_counter() - begin
        process.stdin.write(json.dumps(FRAMES[3]).encode() + b"\n")
        process.stdin.flush()
        until(process.stdout.readline, 3)
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        (line,) = (line for line in rollup.splitlines() if line.startswith("Rss:"))
        process.stdin.close()
        process.wait(30)
    return seconds, int(line.split()[1]) / 1024


def until(read: Callable[[], bytes], ident: int) -> None:
    """Read frames up to the answer with this id."""
    while line := read():
        frame = json.loads(line)
        if frame.get("id") == ident:
            if "result" not in frame or frame["result"].get("isError"):
                raise SystemExit(f"the server answered {frame}")
            return
    raise SystemExit("the server ended early")


def main() -> int:
    """Print the three ratios; status 1 when one is over its bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "amux"
        file.write_bytes(build())
        with running(folder / "hub") as hub:
            with hub.client("user") as user:
                user.health()
            environ = {"AMUX_HOME": str(hub.home)}
            alone = [INTERPRETER, "-I", "-S"]
            show = [*alone, str(file), "memory", "show", "MEMORY.md"]
            # Turn by turn, so that a busy moment of the machine meets both.
            pairs = [
                (run(show, environ), run([*alone, "-c", "pass"], environ)) for _ in range(ROUNDS)
            ]
            ours = [sys.executable, "-I", "-S", str(file), "mcp"]
            theirs = [sys.executable, str(PEER)]
            peer_environ = {**environ, "PYTHONPATH": str(PEER.parents[1])}
            servers = [(serve(ours, environ), serve(theirs, peer_environ)) for _ in range(SERVERS)]
    rows = (
        ("show / python3 -I -S -c pass", "ms", pairs, 1e3, MOST_SHOW),
        (
            "MCP start to tools/list / mcp SDK",
            "ms",
            [(mine[0], other[0]) for mine, other in servers],
            1e3,
            MOST_START,
        ),
        (
            "MCP memory / mcp SDK",
            "MiB",
            [(mine[1], other[1]) for mine, other in servers],
            1,
            MOST_MEMORY,
        ),
    )
    exceeded = False
    print(f"{'':34} {'amux':>9} {'peer':>9} {'ratio':>7} {'at most':>8}")
    for label, unit, samples, factor, most in rows:
        mine = statistics.median(sample[0] for sample in samples)
        other = statistics.median(sample[1] for sample in samples)
        exceeded |= mine / other > most
        shown = f"{mine * factor:6.1f} {unit:>3} {other * factor:5.1f} {unit:>3}"
        print(f"{label:34} {shown} {mine / other:7.2f} {most:8.2f}")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
