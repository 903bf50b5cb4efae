"""What amux's controls cost when Codex starts: `benchmarks/codex_handshake.py`.

One run, one binary, one MCP entry: the handshake of a bound launch (initialize, config/read,
thread/start, memory mode, loaded tools, hooks) against the bare sequence initialize, thread/start.
Memory mode is timed by itself at the end of the bare one, since Codex alone decides what it costs
(amux asks the other questions while it waits). The two kinds alternate, so that a busy machine
hits both. The target: at most 1.15 times, plus memory mode.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amux.launcher.channel.jsonrpc import JsonRpcChannel
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.providers.base import Facts, LaunchPlan, Tools
from amux.providers.codex import CodexProvider, flags
from fixtures.codex import agent_request, grant_for, make_home
from fixtures.pinned import CODEX_VERSIONS

if TYPE_CHECKING:
    from amux.launcher.process.spawn import AgentProcess
    from fixtures.codex import CodexHome

ROUNDS: Final = 15
TARGET: Final = 1.15
SERVER: Final = Path(__file__).parent.parent / "tests" / "e2e" / "memory_server.py"


def start(home: CodexHome, argv: tuple[str, ...]) -> AgentProcess:
    """Start an app-server."""
    return spawn(
        SpawnRequest(
            argv=argv,
            environment=agent_request(home).environment,
            cwd=str(home.cwd),
            marker=os.urandom(16).hex(),
        )
    )


def bound(home: CodexHome) -> float:
    """Return the seconds from the start to the end of amux's handshake."""
    provider, request = CodexProvider(), agent_request(home)
    grant = grant_for(home, tools=Tools.MCP, cli=(sys.executable, "-I", "-S", str(SERVER)))
    plan = provider.plan(request, grant, Facts())
    if not isinstance(plan, LaunchPlan):
        raise TypeError(plan)
    begin = time.perf_counter()
    process = start(home, plan.argv)
    try:
        provider.handshake(JsonRpcChannel(process), request, grant, plan)
        return time.perf_counter() - begin
    finally:
        process.stop(close=0.0, term=5.0)


def bare(home: CodexHome) -> tuple[float, float]:
    """Return the seconds from the start to a started thread, then those of memory mode alone.

    The MCP entry is the same.
    """
    request = agent_request(home)
    grant = grant_for(home, tools=Tools.MCP, cli=(sys.executable, "-I", "-S", str(SERVER)))
    entry: dict[str, Any] = {
        f"mcp_servers.{flags.SERVER}.{name}": value
        for name, value in flags.server_entry(grant).items()
    }
    argv = (*request.command, "app-server", *flags.overrides(entry))
    begin = time.perf_counter()
    process = start(home, argv)
    try:
        channel = JsonRpcChannel(process)
        client = {"name": "bare", "version": "1"}
        experimental = {"experimentalApi": True}
        first = {"clientInfo": client, "capabilities": experimental}
        channel.request("initialize", first, deadline=30)
        channel.notify("initialized")
        thread = channel.request("thread/start", {"cwd": request.cwd}, deadline=30)["thread"]
        started = time.perf_counter()
        mode = {"threadId": thread["id"], "mode": "disabled"}
        channel.request("thread/memoryMode/set", mode, deadline=30)
        return started - begin, time.perf_counter() - started
    finally:
        process.stop(close=0.0, term=5.0)


def compare(version: str) -> bool:
    """Print one version's figures; say whether the target is reached."""
    with tempfile.TemporaryDirectory(prefix="amux-bench-") as folder:
        home = make_home(Path(folder), version, "http://127.0.0.1:9")
        bare(home)
        bound(home)  # the first start of a home writes Codex's own files
        plain: list[float] = []
        modes: list[float] = []
        whole: list[float] = []
        for _ in range(ROUNDS):
            started, mode = bare(home)
            plain.append(started)
            modes.append(mode)
            whole.append(bound(home))
    before, mode, after = (statistics.median(one) for one in (plain, modes, whole))
    ratio = (after - mode) / before
    print(
        f"codex {version}: bare {before * 1000:.0f} ms, memory mode {mode * 1000:.0f} ms, "
        f"with all controls {after * 1000:.0f} ms; without memory mode {ratio:.2f} times the bare "
        f"one (target {TARGET})"
    )
    return ratio <= TARGET


if __name__ == "__main__":
    reached = [compare(version) for version in CODEX_VERSIONS]
    sys.exit(0 if all(reached) else 1)
