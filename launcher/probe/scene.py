"""The place of a probe with model turns: a real agent and Hub, a throw-away home, a scripted model.

The home is one that an earlier time without amux left behind: instructions of the user, and a
native memory that is switched on and has something to tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.config import set_setting
from amux.hub.local import ensure_running, stop_hub
from amux.launcher.errors import LaunchError
from amux.launcher.host import this_host
from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.prober import Prober
from amux.launcher.probe.stage import DUMMY_KEY, PATH, STAGES
from amux.launcher.request import LaunchRequest
from amux.providers.base import Mode, Provider, Tools
from amux.providers.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amux.launcher.host import Host

USERS: Final = "These are the probe's own instructions."
ROLE: Final = "reviewer"
"""A kind of sub-agent of the user's own; Claude's has a memory."""
NATIVE: Final = "What the agent's own memory kept from earlier."
MEMORIES_ON: Final = """
[features]
memories = true
memory_tool = true

[memories]
use_memories = true
generate_memories = true
"""
"""Under both names of the feature."""
CLAUDE_ARGUMENTS: Final = (
    # Claude 2.1.197 names its default model differently on a resume: one is named here.
    "--model=claude-sonnet-4-5",
    "--allowedTools=Bash",
    f"--append-system-prompt={USERS}",
)
ARGUMENTS: Final = {
    "claude": CLAUDE_ARGUMENTS,
    "claude-sdk": CLAUDE_ARGUMENTS,
    "pi": ("--provider", "scripted", "--model", "scripted-1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that a probe of one agent plays in."""

    provider: Provider
    host: Host
    home: Path
    environment: Mapping[str, str]
    cwd: Path
    executable: Path | None
    model: ScriptedModel
    mind: Prober

    def request(self, session: str | None = None) -> LaunchRequest:
        """Ask for a fresh launch, or for the resume of a session."""
        return LaunchRequest(
            provider=self.provider.name,
            arguments=ARGUMENTS.get(self.provider.name, ()),
            mode=Mode.STREAM,
            cwd=self.cwd,
            environment=self.environment,
            executable=self.executable,
            session=session,
        )

    def on_screen(self, prompt: str) -> LaunchRequest:
        """Ask for a fresh launch on a terminal of its own, with a first prompt."""
        fresh = self.request()
        return replace(fresh, arguments=(*fresh.arguments, prompt), mode=Mode.TERMINAL, pty=True)


@contextlib.contextmanager
def scene(name: str, executable: Path | None) -> Iterator[Scene]:
    """Set one up and take it all away afterwards.

    Raises UnknownProvider, or LaunchError for an agent that nobody knows how to point at a
    scripted model.
    """
    provider = Registry().load(name)
    if name not in STAGES:
        message = (
            f"amux probe is for {', '.join(sorted(STAGES))}: how {name} is pointed at a scripted "
            "model, and how it takes a turn, only its provider's own tests can know; docs/probe.md "
            "says how they do the same"
        )
        raise LaunchError(message)
    with _host() as (host, folder):
        mind = Prober(cli=provider.capabilities.tools is Tools.CLI)
        with ScriptedModel(mind) as model:
            home, cwd = folder / "home", folder / "work"
            environment = STAGES[name](home, model.url, path=host.environ["PATH"])
            cwd.mkdir()
            LEFT_BEHIND[name](home, cwd)
            yield Scene(
                provider=provider,
                host=host,
                home=home,
                environment=environment,
                cwd=cwd,
                executable=executable,
                model=model,
                mind=mind,
            )


@contextlib.contextmanager
def _host() -> Iterator[tuple[Host, Path]]:
    # Not below /tmp: Codex refuses to make its helpers there.
    roomy = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108  # mkdtemp below it
    folder = Path(tempfile.mkdtemp(prefix="amux-probe-", dir=roomy)).resolve()
    environ = {
        "PATH": os.environ.get("PATH", PATH),
        "HOME": str(folder),
        "AMUX_HOME": str(folder / "amux"),
        "AMUX_RUNS": str(folder / "amux" / "runs"),
    }
    try:
        host = this_host(environ)
        set_setting(host.home, "memory.enabled", "true")
        ensure_running(host.home, host.environ)
        try:
            yield host, folder
        finally:
            stop_hub(host.home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _left_by_codex(home: Path, cwd: Path) -> None:
    config = home / ".codex" / "config.toml"
    trusted = f'[projects."{cwd}"]\ntrust_level = "trusted"\n'
    role = f'[agents.{ROLE}]\ndescription = "Reviews."\nconfig_file = "{ROLE}.toml"\n'
    config.write_text(
        f'developer_instructions = "{USERS}"\n{config.read_text()}\n{MEMORIES_ON}{trusted}{role}'
    )
    (home / ".codex" / f"{ROLE}.toml").write_text('model_reasoning_effort = "low"\n')
    memories = home / ".codex" / "memories"
    memories.mkdir()
    (memories / "memory_summary.md").write_text(NATIVE)


def _left_by_claude(home: Path, cwd: Path) -> None:
    project = re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
    memory = home / ".claude" / "projects" / project / "memory"
    memory.mkdir(parents=True)
    (memory / "MEMORY.md").write_text(NATIVE)
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    answers = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [DUMMY_KEY[-20:]], "rejected": []},
        "projects": {str(cwd): trusted},
    }
    (home / ".claude.json").write_text(json.dumps(answers))
    roles = cwd / ".claude" / "agents"
    roles.mkdir(parents=True)
    text = f"---\nname: {ROLE}\ndescription: reviews\nmemory: user\n---\nYou review.\n"
    (roles / f"{ROLE}.md").write_text(text)
    kept = home / ".claude" / "agent-memory" / ROLE
    kept.mkdir(parents=True)
    (kept / "MEMORY.md").write_text(NATIVE)


def _left_by_pi(home: Path, cwd: Path) -> None:
    del cwd
    (home / ".pi" / "agent" / "APPEND_SYSTEM.md").write_text(USERS)


LEFT_BEHIND: Final[dict[str, Callable[[Path, Path], None]]] = {
    "codex": _left_by_codex,
    "claude": _left_by_claude,
    "claude-sdk": _left_by_claude,
    "pi": _left_by_pi,
}
