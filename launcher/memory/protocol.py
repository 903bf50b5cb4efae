"""The fixed text that tells an agent how to use memory (docs/agent-side.md).

It depends on nothing but the kind of tools at hand, so that it stands in the prompt's
prefix unchanged from launch to launch. One template is the source; its two renderings are kept
beside it, since a launch should not pay for a template engine. After a change of the template:

    python -m amux.launcher.memory.protocol
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

VERSION: Final = "1"
"""Raised by one with each change of a rendered text; a session keeps the text it began with."""

MAX_BYTES: Final = 2048

Tools = Literal["mcp", "cli"]

_VERBS: Final[dict[Tools, dict[str, str]]] = {
    "mcp": {
        "search": "`amux_memory_search`",
        "read": "`amux_memory_get`",
        "save": "`amux_memory_upsert`",
        "forget": "`amux_memory_forget`",
    },
    "cli": {
        "search": "`amux memory search`",
        "read": "`amux memory show`",
        "save": "`amux memory upsert`",
        "forget": "`amux memory forget`",
    },
}


@dataclass(frozen=True, slots=True)
class ProtocolText:
    """A rendered protocol: its text, the version of its wording, the SHA-256 of its UTF-8 bytes."""

    text: str
    version: str
    digest: str


def load(tools: Tools) -> ProtocolText:
    """Return the protocol for an agent that reaches memory by MCP or by the command line."""
    text = Path(__file__).with_name(rendering(tools)).read_text("utf-8")
    return _protocol(text)


def rendering(tools: Tools) -> str:
    """Return the name of the file that keeps a rendering."""
    return f"protocol.{tools}.md"


def render(tools: Tools) -> ProtocolText:
    """Render the template; the kept files hold exactly this."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  # not on a launch's way

    source = Path(__file__).with_name("protocol.md.j2").read_text("utf-8")
    environment = Environment(
        autoescape=False,  # noqa: S701  # Markdown for a model, from constants only
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.from_string(source).render(mcp=tools == "mcp", **_VERBS[tools])
    return _protocol(text.strip() + "\n")


def digest(text: str) -> str:
    """Return the lower-case hex SHA-256 of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def _protocol(text: str) -> ProtocolText:
    return ProtocolText(text=text, version=VERSION, digest=digest(text))


if __name__ == "__main__":
    for kind in _VERBS:
        Path(__file__).with_name(rendering(kind)).write_text(render(kind).text, "utf-8")
