"""What the provider tells the sidecar: one JSON file of the run."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One conversation. Paths are absolute.

    `append` is the merged text; None where `extra` names a file that holds it. `snapshot` False
    has the prompt made anew for each request. `settings` and `mcp_config` are JSON or name a file.
    `extra` holds the rest of the caller's options by name without dashes, None for a flag.
    """

    cli: str
    cwd: str
    append: str | None
    snapshot: bool | None
    settings: str | None
    mcp_config: str | None
    allowed_tools: list[str]
    disallowed_tools: list[str]
    add_dirs: list[str]
    resume: str | None
    fork: bool
    session_id: str | None
    extra: dict[str, str | None]

    @classmethod
    def read(cls, argument: str) -> Options:
        """Read the JSON, or the file, that the provider planned; a wrong one is a bug of ours."""
        text = argument if argument.startswith("{") else Path(argument).read_text("utf-8")
        loaded: dict[str, Any] = json.loads(text)
        return cls(**{field.name: loaded[field.name] for field in fields(cls)})
