"""The offline probe of Codex: every control of a bound launch, without any model turn.

It runs in a throw-away home that says the opposite of what a launch must bring about: native
memory is on in the user's file, under both of its names, and there is an old summary to be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from launcher.channel import JsonRpcChannel
from launcher.errors import LaunchError
from launcher.probe.findings import Finding, ProbeReport
from launcher.probe.model import Say, ScriptedModel
from launcher.probe.stage import stage_codex
from launcher.protocol import load
from launcher.spawn import SpawnRequest, spawn
from providers.base import AgentRequest, Facts, Grant, LaunchPlan, Mode, Tools
from providers.codex import SHOWN, CodexProvider
from providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.agents import AgentCommand
    from providers.base import Confirmed

VERSION_SECONDS: Final = 20.0
TERM_GRACE: Final = 5.0
USERS: Final = "These are the probe's own developer instructions."
CONTRARY: Final = """
[features]
memories = true
memory_tool = true

[memories]
use_memories = true
generate_memories = true
"""
NOT_SHOWN: Final = (
    "what a live model does with the protocol",
    "background work and sub-agents: they need model turns",
    "settings of this machine's real Codex home, and of the account that it is logged in to",
)


@dataclass(frozen=True, slots=True)
class _Stage:
    home: Path
    cwd: Path
    environment: Mapping[str, str]
    model: ScriptedModel

    @property
    def codex(self) -> Path:
        return self.home / ".codex"


def probe_codex(command: AgentCommand) -> ProbeReport:
    """Probe the Codex that `command` starts; what fails is a finding, not an exception."""
    version: str | None = None
    findings: list[Finding] = []
    try:
        version = CodexProvider().version(_version_output(command))
        with (
            tempfile.TemporaryDirectory(prefix="amux-probe-") as folder,
            ScriptedModel(lambda _: Say("The probe takes no turns.")) as model,
        ):
            stage = _set_up(Path(folder).resolve(), model, command)
            findings += _look(stage, command, version)
    except (ProviderError, LaunchError) as error:
        findings.append(
            Finding(
                subject="bound launch",
                observed=f"{error.code}: {error}",
                passed=False,
                source="amux",
            )
        )
    return ProbeReport(
        provider="codex",
        version=version,
        command=command.argv,
        shown_for=SHOWN,
        findings=tuple(findings),
        not_shown=NOT_SHOWN,
    )


def _version_output(command: AgentCommand) -> str:
    try:
        done = subprocess.run(
            (*command.argv, "--version"),
            env={"HOME": "/nonexistent", "PATH": _path(command)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"`{' '.join(command.argv)} --version` did not answer: {error}"
        raise LaunchError(message) from error
    return done.stdout + done.stderr


def _path(command: AgentCommand) -> str:
    return os.pathsep.join((*command.folders, *os.defpath.split(os.pathsep)))


def _set_up(folder: Path, model: ScriptedModel, command: AgentCommand) -> _Stage:
    home, cwd = folder / "home", folder / "work"
    environment = stage_codex(home, model.url, path=_path(command))
    cwd.mkdir()
    path = home / ".codex" / "config.toml"
    path.write_text(f'developer_instructions = "{USERS}"\n{path.read_text()}{CONTRARY}')
    (home / ".codex" / "memories").mkdir()
    (home / ".codex" / "memories" / "memory_summary.md").write_text("An old summary.\n")
    return _Stage(home, cwd, environment, model)


def _look(stage: _Stage, command: AgentCommand, version: str) -> list[Finding]:
    before = _digests(stage.codex)
    protocol = load("mcp").text
    confirmed = _handshake(stage, command, version, protocol)
    found = [
        Finding(subject=one.control, observed=one.observed, passed=True, source=one.source)
        for one in confirmed.evidence
    ]
    merged = confirmed.instructions == f"{USERS}\n\n{protocol}"
    found.append(
        Finding(
            subject="developerInstructions",
            observed="accepted: the user's own, then the protocol, once",
            passed=merged,
            source="thread/start",
        )
    )
    stored = _stored_mode(stage.codex, confirmed.native_id or "")
    found.append(
        Finding(
            subject="stored memory mode",
            observed=stored or "none",
            passed=stored == "disabled",
            source="Codex's own state",
        )
    )
    after = _digests(stage.codex)
    changed = sorted(name for name, digest in before.items() if after.get(name) != digest)
    found.append(
        Finding(
            subject="the user's own files",
            observed=f"changed: {', '.join(changed)}" if changed else "unchanged",
            passed=not changed,
            source="digests before and after",
        )
    )
    found.append(
        Finding(
            subject="model requests",
            observed=str(len(stage.model.turns)),
            passed=not stage.model.turns,
            source="scripted model",
        )
    )
    return found


def _handshake(stage: _Stage, command: AgentCommand, version: str, protocol: str) -> Confirmed:
    """Launch an app-server as a bound launch would, and do the provider's handshake."""
    provider = CodexProvider()
    request = AgentRequest(
        command=command.argv,
        version=version,
        arguments=(),
        mode=Mode.STREAM,
        cwd=str(stage.cwd),
        home=str(stage.home),
        environment=stage.environment,
    )
    grant = Grant(
        binding="global",
        protocol=protocol,
        tools=Tools.NONE,
        cli=(),
        connection="",
        config=str(stage.home),
        work=str(stage.home),
    )
    plan = provider.plan(request, grant, Facts())
    if not isinstance(plan, LaunchPlan):
        raise LaunchError("the provider wants a pre-flight of a launch over its channel")
    process = spawn(
        SpawnRequest(
            argv=plan.argv,
            environment=stage.environment,
            cwd=request.cwd,
            marker=os.urandom(16).hex(),
        )
    )
    try:
        return provider.control(JsonRpcChannel(process), request, grant, plan)
    finally:
        process.stop(close=0.0, term=TERM_GRACE)


def _stored_mode(codex: Path, native_id: str) -> str | None:
    """Return the mode in the newest of Codex's state files that knows the thread."""
    for path in sorted(codex.glob("state_*.sqlite"), reverse=True):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(path)) as state,
        ):
            row = state.execute(
                "select memory_mode from threads where id = ?", (native_id,)
            ).fetchone()
            if row is not None:
                return str(row[0])
    return None


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
