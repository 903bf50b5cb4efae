"""Ask an agent's command for its version, in the very circumstances in which it will be started.

What a version manager puts on PATH is one file for many programs: what runs behind it depends on
the folder, the environment and the home. So the question is asked in the launch's own, less its
secrets, and an answer is remembered only for a file that is the agent itself.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import replace_file
from amux.launcher.errors import AgentNotFound
from amux.launcher.steps.environment import without_secrets
from amux.providers.release import is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amux.launcher.target import AgentCommand
    from amux.materializer.values import Identity

SECONDS: Final = 60.0
"""For an answer: a version manager may install what it is asked for first."""
NOWHERE: Final = "/nonexistent"
"""A home that no account but root's could make."""
PACKAGES: Final = "node_modules"
LINKS: Final = ".bin"
VERSIONS: Final = "versions"
"""Where an agent that updates itself keeps its programs, each named by its number."""


@dataclass(frozen=True, slots=True)
class VersionCache:
    """Remember what `--version` printed, by the program file's identity.

    `path` is a JSON file of ours; a missing or broken one is an empty cache.
    """

    path: Path

    def output(
        self, command: AgentCommand, uid: int | None, ask: Callable[[tuple[str, ...]], str]
    ) -> str:
        """Return what `<command> --version` printed, asking only for a file not seen before.

        A file that may stand for several programs is asked each time. `uid` is the target's,
        since another account may not be able to run the same file.
        """
        question = (*command.argv, "--version")
        if not is_itself(command.program):
            return ask(question)
        real = Path(os.path.realpath(command.program))
        info = real.stat()
        key = f"{uid}:{command.program.name}:{real}:{info.st_ino}:{info.st_size}:{info.st_mtime_ns}"
        known = self._load()
        if key in known:
            return known[key]
        printed = ask(question)
        self._save({**known, key: printed})
        return printed

    def _load(self) -> dict[str, str]:
        try:
            loaded = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(loaded, dict):
            return {}
        return {str(key): value for key, value in loaded.items() if isinstance(value, str)}

    def _save(self, known: dict[str, str]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, json.dumps(known, indent=1).encode())


def is_itself(program: str | Path) -> bool:
    """Say whether the file is one program of one version, as npm or the agent itself installs it.

    What a version manager or a wrapper puts there may be anything, and something else tomorrow.
    """
    real = Path(os.path.realpath(program))
    if PACKAGES in real.parts:
        return real.parent.name != LINKS
    return real.parent.name == VERSIONS and is_plain(real.name)


def ask_version(
    argv: tuple[str, ...],
    *,
    identity: Identity | None,
    environment: Mapping[str, str],
    cwd: str,
) -> str:
    """Run the question as the target, in its folder and home; raise AgentNotFound.

    A home that is not there yet is not made by this: a throw-away one takes its place.
    """
    # Imported here: most answers are remembered.
    from amux.materializer.trial import run as run_trial  # noqa: PLC0415

    asked = without_secrets(environment)
    with tempfile.TemporaryDirectory(prefix="amux-version-") as empty:
        if not os.path.isdir(asked["HOME"]):  # noqa: PTH112  # also where it may not be looked at
            asked["HOME"] = empty if identity is None else NOWHERE
        where = cwd if identity is not None or os.path.isdir(cwd) else "/"  # noqa: PTH112
        trial = run_trial(argv, identity=identity, environment=asked, cwd=where, deadline=SECONDS)
    if trial.status == 0:
        return (trial.stdout + trial.stderr).decode(errors="replace")
    who, hint = "your account", ""
    if identity is not None:
        who = f"user {identity.user}"
        hint = (
            "; an agent below somebody's private home must be installed where the target can read "
            "it, such as /usr/local"
        )
    message = f"`{' '.join(argv)}` cannot be run by {who} in {where} ({trial.reason}){hint}"
    raise AgentNotFound(message)
