"""Codex's command line: configuration overrides for one launch, merged with the caller's own.

Codex reads `-c key=value` as TOML, later flags win, and a key may be dotted. Everything that a
bound launch needs is passed so; no configuration file is touched.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from amux.providers.base import Tools
from amux.providers.errors import BadArguments, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.providers.base import Grant

SERVER: Final = "amux"
NAMESPACE: Final = f"mcp__{SERVER}"
TOOL_NAMES: Final = (
    "amux.memory_search",
    "amux.memory_get",
    "amux.memory_upsert",
    "amux.memory_forget",
    "amux.result_continue",
)

MEMORY_OFF: Final = {
    "features.memories": False,
    "features.memory_tool": False,
    "memories.use_memories": False,
    "memories.generate_memories": False,
}
"""All four: the legacy alias `memory_tool` in a file would beat `features.memories` alone."""

DISABLE_MEMORY: Final = ("--disable", "memories", "--disable", "memory_tool")
"""Beside a caller's `--enable`, which comes after every `-c`; `--disable` comes after both."""
NO_HOOKS: Final = {"features.hooks": False}
INSTRUCTIONS: Final = "developer_instructions"
DIRECT_NAMESPACES: Final = "features.code_mode.direct_only_tool_namespaces"
"""Shows the tools to models that would have to search for them; unknown to 0.141 and older."""
SUBAGENT_TEXT: Final = "features.multi_agent_v2.subagent_developer_instructions"
"""What sub-agents get in place of the developer instructions, also where it is empty."""
OPTIONAL: Final = frozenset({DIRECT_NAMESPACES, SUBAGENT_TEXT})
"""Keys that a launch can be without in a version that does not know them."""
MAX_ARGUMENT_BYTES: Final = 131_071
"""The kernel's limit for one argument."""

SERVER_KEYS: Final = (
    *("command", "args", "env", "enabled", "required"),
    *("default_tools_approval_mode", "enabled_tools", "disabled_tools"),
)
_AT_KEY: Final = re.compile(r"^in `([^`]+)`$", re.MULTILINE)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_literal(value: object) -> str:
    """Return a value as TOML on one line. Bool, int, str, lists and string-keyed mappings."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _string(value)
        case list() | tuple():
            return "[" + ", ".join(toml_literal(item) for item in value) + "]"
        case dict():
            pairs = (f"{toml_key(name)} = {toml_literal(item)}" for name, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            raise BadArguments(f"{type(value).__name__} cannot be passed to Codex as TOML")


def toml_key(name: str) -> str:
    """Return one segment of a TOML key, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def overrides(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return `-c key=value` for each dotted key."""
    return tuple(
        part for name, value in values.items() for part in ("-c", f"{name}={toml_literal(value)}")
    )


def server_entry(grant: Grant) -> dict[str, object]:
    """Return the launch's MCP server entry. It holds paths and the binding, never a secret."""
    command, *rest = grant.mcp
    return {
        "command": command,
        "args": rest,
        "env": {"AMUX_MEMORY_BINDING": grant.binding, "AMUX_CONNECTION": grant.connection},
        "enabled": True,
        "required": True,
        "default_tools_approval_mode": "approve",
        "enabled_tools": list(TOOL_NAMES),
        "disabled_tools": [],
    }


def memory_overrides(grant: Grant, unknown: frozenset[str] = frozenset()) -> dict[str, object]:
    """Return every override of a bound launch, by dotted key; those that are `unknown` are needed.

    Raises UnsupportedVersion for an agent that does not know one that the launch cannot do without.
    """
    values: dict[str, object] = dict(MEMORY_OFF)
    if grant.tools is Tools.MCP:
        for name, value in server_entry(grant).items():
            values[f"mcp_servers.{SERVER}.{name}"] = value
        values[DIRECT_NAMESPACES] = [NAMESPACE]
    needed = sorted((unknown & values.keys()) - {DIRECT_NAMESPACES})
    if needed:
        raise UnsupportedVersion(
            f"Codex ended because it does not understand `-c {needed[0]}=…`, which amux passes to "
            "it and a launch with memory needs; install another version of Codex, or launch "
            "without memory"
        )
    return {name: value for name, value in values.items() if name not in unknown}


def rejected_key(said: str) -> str:
    """Return the key, or in older versions its table, of a flag that Codex ended of, else nothing.

    For what is wrong in a file Codex does not end.
    """
    found = _AT_KEY.findall(said)
    return str(found[-1]) if found else ""


def our_keys_at(at: str) -> tuple[str, ...]:
    """Return those of amux's own keys that are `at` this key, likeliest first."""
    servers = (f"mcp_servers.{SERVER}.{name}" for name in SERVER_KEYS)
    keys = (DIRECT_NAMESPACES, *MEMORY_OFF, *NO_HOOKS, *servers, SUBAGENT_TEXT)
    return tuple(name for name in keys if keys_overlap(name, at))


def keys_overlap(name: str, other: str) -> bool:
    """Say whether two dotted keys are the same or one is in the table of the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")


def text_override(name: str, text: str) -> tuple[str, ...]:
    """Return the override that carries a text with the protocol merged into it.

    Raises BadArguments where the kernel would refuse the argument for its length.
    """
    flag = f"{name}={toml_literal(text)}"
    size = len(flag.encode())
    if size > MAX_ARGUMENT_BYTES:
        raise BadArguments(
            f"{name} and the memory protocol take {size} bytes as an argument of codex, and the "
            f"kernel allows {MAX_ARGUMENT_BYTES}; shorten {name} in Codex's configuration, or "
            "launch over the app-server's channel"
        )
    return ("-c", flag)


def _string(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
