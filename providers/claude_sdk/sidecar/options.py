"""What the provider tells the sidecar, in JSON: as its argument, or in a file of the run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
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
    def from_json(cls, text: str) -> Options:
        """Read what `as_json` wrote."""
        loaded: dict[str, Any] = json.loads(text)
        return cls(**{field.name: loaded[field.name] for field in fields(cls)})

    def as_json(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)
