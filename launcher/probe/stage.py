"""Throw-away homes that point a real agent at a scripted model, without an account.

Each function writes what the agent needs below `home` and returns the environment to start it
with; nothing of the caller's own environment but PATH is in it. What an agent leaves in a temporary
folder is below `home` too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODEL: Final = "scripted-1"
DUMMY_KEY: Final = "dummy"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CODEX_CONFIG: Final = """\
model = "{model}"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_MODEL_KEY"
"""


def stage_codex(home: Path, url: str, *, path: str = PATH) -> Mapping[str, str]:
    """Give Codex a home whose only model provider is the scripted one."""
    folder = home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CODEX_CONFIG.format(model=MODEL, url=url))
    return {**_place(home, path), "SCRIPTED_MODEL_KEY": DUMMY_KEY}


def stage_claude(home: Path, url: str, *, path: str = PATH) -> Mapping[str, str]:
    """Give Claude Code a home and the scripted model's address."""
    return {
        **_place(home, path),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": DUMMY_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def stage_pi(home: Path, url: str, *, path: str = PATH) -> Mapping[str, str]:
    """Give Pi a home whose only model provider is the scripted one."""
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-responses",
        "apiKey": DUMMY_KEY,
        "models": [{"id": MODEL}],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    return {**_place(home, path), "PI_OFFLINE": "1"}


def _place(home: Path, path: str) -> Mapping[str, str]:
    """Make the folders that every agent is pointed at."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(home), "PATH": path, "TMPDIR": str(temporary)}


STAGES: Final = {
    "codex": stage_codex,
    "claude": stage_claude,
    "claude-sdk": stage_claude,
    "pi": stage_pi,
}
