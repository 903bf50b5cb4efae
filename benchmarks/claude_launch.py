"""What a bound launch of Claude costs: `benchmarks/claude_launch.py [ROUNDS]`.

From the start of the launch to the arrival of the first model request, with the Hub running and the
same prompt, in one run whose kinds alternate so that a busy machine hits all of them:

    bare          claude alone
    with tools    claude alone, with the same memory server in a `--mcp-config` of the caller's
    api           launch() of the warm Python API, over stream-json
    command       `amux launch`, print mode, the pre-flight's answer remembered
    first         the same command, asked for the first time

Claude waits for its MCP servers before the first request, whoever configured them. So the targets,
1.15 times for the API and 1.3 times for the command, compare with Claude that has the tools too;
the ratio to Claude without any is printed beside them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.connection import connection_path
from amux.launcher.launch import launch
from amux.launcher.probe.model import Say, ScriptedModel
from amux.launcher.probe.stage import stage_claude
from amux.launcher.request import LaunchRequest
from fixtures.hosts import running_host
from fixtures.pinned import CLAUDE_VERSIONS, pinned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amux.launcher.host import Host
    from amux.launcher.run import Run

ROUNDS: Final = 9
DEADLINE: Final = 60.0
TARGETS: Final = {"api": 1.15, "command": 1.3}
AMUX: Final = Path(sys.executable).parent / "amux"
PROMPT: Final = "hello"
MESSAGE: Final = {"type": "user", "message": {"role": "user", "content": PROMPT}}
STREAM: Final = ("-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose")


@dataclass(slots=True)
class Bench:
    """One version of Claude on a stage; each method returns the seconds to the first request."""

    host: Host
    model: ScriptedModel
    executable: Path
    environment: Mapping[str, str]
    cwd: Path
    launches: list[float] = field(default_factory=list)

    def _arrival(self, begin: float, seen: int) -> float:
        self.model.wait_for(lambda _: len(self.model.turns) > seen, deadline=DEADLINE)
        return self.model.turns[seen].received - begin

    def _process(self, argv: tuple[str, ...], text: str = "", **environment: str) -> float:
        seen, begin = len(self.model.turns), time.monotonic()
        process = subprocess.Popen(
            argv,
            env={**self.environment, **environment},
            cwd=self.cwd,
            stdin=subprocess.PIPE if text else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if process.stdin is not None:
            process.stdin.write(text)
            process.stdin.flush()
        took = self._arrival(begin, seen)
        if process.stdin is not None:
            process.stdin.close()
        process.wait()
        return took

    def tools(self) -> tuple[str, ...]:
        """Return what a person would write to give Claude the same tools by hand."""
        server = {
            "type": "stdio",
            "command": str(AMUX),
            "args": ["mcp"],
            "env": {"AMUX_CONNECTION": str(connection_path(self.host.home, "user"))},
            "alwaysLoad": True,
        }
        path = self.cwd.parent / "tools.json"
        path.write_text(json.dumps({"mcpServers": {"amux": server}}))
        return (f"--mcp-config={path}", "--allowedTools=mcp__amux")

    def bare_stream(self) -> float:
        """Claude alone over stream-json."""
        return self._process((str(self.executable), *STREAM), json.dumps(MESSAGE) + "\n")

    def tools_stream(self) -> float:
        """Claude with the tools, over stream-json."""
        argv = (str(self.executable), *STREAM, *self.tools())
        return self._process(argv, json.dumps(MESSAGE) + "\n")

    def api(self) -> float:
        """launch() and then the prompt."""
        request = LaunchRequest(
            provider="claude",
            cwd=self.cwd,
            environment=self.environment,
            executable=self.executable,
        )
        seen, begin = len(self.model.turns), time.monotonic()
        run: Run = launch(request, self.host)
        self.launches.append(time.monotonic() - begin)
        run.channel.send(MESSAGE)
        took = self._arrival(begin, seen)
        run.stop()
        return took

    def bare_print(self) -> float:
        """Claude alone in print mode."""
        return self._process((str(self.executable), "-p", PROMPT))

    def tools_print(self) -> float:
        """Claude with the tools, in print mode."""
        return self._process((str(self.executable), "-p", *self.tools(), PROMPT))

    def command(self) -> float:
        """`amux launch` in print mode."""
        argv = (str(AMUX), "launch", "claude", "--executable", str(self.executable))
        places = {"AMUX_HOME": str(self.host.home), "AMUX_RUNS": str(self.host.runs)}
        return self._process((*argv, "--", "-p", PROMPT), **places)

    def first(self) -> float:
        """Run the command with nothing remembered about Claude."""
        self.host.preflights.unlink(missing_ok=True)
        return self.command()


def measure(host: Host, version: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each kind."""
    agent = pinned("claude", version)
    cwd = folder / "project"
    cwd.mkdir(parents=True)
    with ScriptedModel(lambda _: Say("ok")) as model:
        environment = stage_claude(folder / "home", model.url, path=agent.path)
        bench = Bench(host, model, agent.executable, environment, cwd)
        kinds: dict[str, Callable[[], float]] = {
            "bare stream": bench.bare_stream,
            "with tools, stream": bench.tools_stream,
            "api": bench.api,
            "bare print": bench.bare_print,
            "with tools, print": bench.tools_print,
            "command": bench.command,
        }
        for kind in (*kinds.values(), bench.first):
            kind()
        firsts = [bench.first() for _ in range(3)]
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, kind in kinds.items():
                taken[name].append(kind())
        return {**taken, "first": firsts, "launch() alone": bench.launches[1:]}


def report(version: str, taken: Mapping[str, list[float]]) -> bool:
    """Print one version's figures and say whether the targets are met."""
    middle = {name: statistics.median(values) for name, values in taken.items()}
    print(f"Claude Code {version}, medians in ms")
    for name, value in middle.items():
        print(f"  {name:<20}{value * 1000:8.0f}   (best {min(taken[name]) * 1000:.0f})")
    met = True
    for kind, shape in (("api", "stream"), ("command", "print")):
        pairs = zip(taken[kind], taken[f"with tools, {shape}"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        naked = middle[kind] / middle[f"bare {shape}"]
        good = ratio <= TARGETS[kind]
        met = met and good
        print(
            f"  {kind}: {ratio:.2f} times Claude with the tools (target {TARGETS[kind]}: "
            f"{'met' if good else 'MISSED'}), {naked:.2f} times Claude without any"
        )
    print(f"  pre-flight: {(middle['first'] - middle['command']) * 1000:.0f} ms the first time")
    return met


def main() -> int:
    """Measure each pinned version; status 1 where a target is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed amux has its byte code
    with (
        tempfile.TemporaryDirectory(prefix="amux-bench-") as name,
        running_host(Path(name)) as host,
    ):
        results = [
            report(version, measure(host, version, Path(name) / version, rounds))
            for version in CLAUDE_VERSIONS
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
