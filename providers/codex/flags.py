"""Codex's command line: configuration overrides for one launch, merged with the caller's own.

Codex reads `-c key=value` as TOML, later flags win, and a key may be dotted. Everything that a
bound launch needs is passed so; no configuration file is touched.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from providers.base import NativeResume, Tools
from providers.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from providers.base import Grant

SERVER: Final = "amux"
NAMESPACE: Final = f"mcp__{SERVER}"
TOOL_NAMES: Final = (
    "amux.memory_search",
    "amux.memory_get",
    "amux.memory_upsert",
    "amux.memory_forget",
    "amux.result_continue",
)

OFF: Final = {
    "features.memories": False,
    "features.memory_tool": False,
    "memories.use_memories": False,
    "memories.generate_memories": False,
}
"""All four: the legacy alias `memory_tool` in a file would beat `features.memories` alone."""

NO_HOOKS: Final = {"features.hooks": False}

_SHORT_FORMS: Final = {
    "-m": "model",
    "--model": "model",
    "-s": "sandbox_mode",
    "--sandbox": "sandbox_mode",
    "-a": "approval_policy",
    "--ask-for-approval": "approval_policy",
}
_OVERRIDES: Final = frozenset({"-c", "--config"})
_FEATURES: Final = frozenset({"--enable", "--disable"})
_RESUMES: Final = frozenset({"resume", "fork"})
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerArguments:
    """The caller's own arguments, sorted: `overrides` for an app-server, `resume` if they ask."""

    overrides: tuple[str, ...]
    resume: NativeResume | None


def literal(value: object) -> str:
    """Return a value as TOML on one line. Bool, int, str, lists and string-keyed mappings."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _string(value)
        case list() | tuple():
            return "[" + ", ".join(literal(item) for item in value) + "]"
        case dict():
            pairs = (f"{key(name)} = {literal(item)}" for name, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            raise BadArguments(f"{type(value).__name__} cannot be passed to Codex as TOML")


def key(name: str) -> str:
    """Return one segment of a TOML key, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def overrides(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return `-c key=value` for each dotted key."""
    return tuple(
        part for name, value in values.items() for part in ("-c", f"{name}={literal(value)}")
    )


def server_entry(grant: Grant) -> dict[str, object]:
    """Return the launch's MCP server entry. It holds paths and the binding, never a secret."""
    command, *rest = grant.cli
    return {
        "command": command,
        "args": [*rest, "mcp"],
        "env": {"AMUX_MEMORY_BINDING": grant.binding, "AMUX_CONNECTION": grant.connection},
        "enabled": True,
        "required": True,
        "default_tools_approval_mode": "approve",
        "enabled_tools": list(TOOL_NAMES),
        "disabled_tools": [],
    }


def bound(grant: Grant) -> dict[str, object]:
    """Return every override of a bound launch, by dotted key."""
    values: dict[str, object] = dict(OFF)
    if grant.tools is Tools.MCP:
        for name, value in server_entry(grant).items():
            values[f"mcp_servers.{SERVER}.{name}"] = value
        values["features.code_mode.direct_only_tool_namespaces"] = [NAMESPACE]
    return values


def native_resume(arguments: Sequence[str]) -> NativeResume | None:
    """Find `resume ID` or `fork ID`, also behind `exec`; `resume --last` names no id."""
    words = _positionals(arguments)
    if words[:1] == ["exec"]:
        words = words[1:]
    if len(words) > 1 and words[0] in _RESUMES:
        return NativeResume(native_id=words[1], fork=words[0] == "fork")
    return None


def for_server(arguments: Sequence[str]) -> CallerArguments:
    """Translate the caller's arguments for an app-server; raise BadArguments for the others."""
    kept: list[str] = []
    pending = list(arguments)
    while pending:
        word = pending.pop(0)
        name, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _RESUMES:
            break
        if name not in _OVERRIDES | _FEATURES and name not in _SHORT_FORMS:
            raise BadArguments(
                f"codex {word!r} means nothing to an app-server; pass -c, --enable, --disable, "
                "--model, --sandbox or --ask-for-approval, or launch in a terminal"
            )
        if not has_value:
            if not pending:
                raise BadArguments(f"codex {word} lacks its value")
            value = pending.pop(0)
        if name in _SHORT_FORMS:
            kept += ["-c", f"{_SHORT_FORMS[name]}={literal(value)}"]
        else:
            kept += [name, value]
    return CallerArguments(overrides=tuple(kept), resume=native_resume(arguments))


def _positionals(arguments: Iterable[str]) -> list[str]:
    found: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word in _OVERRIDES | _FEATURES or word in _SHORT_FORMS:
            skip = True
        elif not word.startswith("-"):
            found.append(word)
    return found


def _string(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
