"""The memory tools in Claude's own words: an MCP server and the permission to use it."""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Final

from amux.providers.claude import arguments as argv
from amux.providers.claude.settings import is_inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amux.providers.base import AgentRequest, Facts, Grant

SERVER: Final = "amux"
PREFIX: Final = f"mcp__{SERVER}"
FILE: Final = "mcp.json"


def mcp_config(grant: Grant) -> bytes:
    """Return the MCP configuration file; it is loaded with the caller's own ones."""
    server = {
        "type": "stdio",
        "command": grant.mcp[0],
        "args": list(grant.mcp[1:]),
        "env": {"AMUX_CONNECTION": grant.connection, "AMUX_MEMORY_BINDING": grant.binding},
        "alwaysLoad": True,
    }
    return json.dumps({"mcpServers": {SERVER: server}}, ensure_ascii=False).encode()


def preflight_config(grant: Grant) -> str:
    """Return the configuration that a pre-flight is asked about; only the tools wait for it."""
    server = {
        "type": "stdio",
        "command": grant.mcp[0],
        "args": list(grant.mcp[1:]),
        "alwaysLoad": True,
    }
    return json.dumps({"mcpServers": {SERVER: server}}, ensure_ascii=False)


def arguments_for(grant: Grant) -> tuple[str, str]:
    """Return the arguments; of two servers with one name Claude takes the last, so they go last."""
    return (
        f"{argv.MCP_CONFIG}={posixpath.join(grant.config, FILE)}",
        f"{argv.ALLOWED}={PREFIX}",
    )


def files_to_read(request: AgentRequest, items: tuple[argv.Item, ...]) -> Iterator[str]:
    """Name the caller's own MCP configuration files."""
    for value in argv.values(items, argv.MCP_CONFIG):
        if not is_inline(value):
            yield posixpath.join(request.cwd, value)


def warnings(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    facts: Facts,
    layers: Iterable[Mapping[str, object]],
) -> Iterator[str]:
    """Say where the caller's own arguments stand in the way of the memory tools."""
    if any(_names_server(source) for source in _configs(request, items, facts)):
        yield f"the caller's own MCP server {SERVER} is left out: the memory tools have its name"
    denied = [rule for value in argv.values(items, argv.DISALLOWED) for rule in _rules(value)]
    for layer in layers:
        permissions = layer.get("permissions")
        rules = permissions.get("deny") if isinstance(permissions, dict) else None
        denied.extend(str(rule) for rule in (rules if isinstance(rules, list) else ()))
    if any(concerns_tools(rule) for rule in denied):
        yield "the caller's own rules deny the memory tools, so Claude does not offer them"


def concerns_tools(rule: str) -> bool:
    """Say whether a permission rule can be about the memory tools; versions differ in wildcards."""
    name = rule.partition("(")[0].strip()
    if name == PREFIX or name.startswith(f"{PREFIX}__"):
        return True
    stem, wildcard, _ = name.partition("*")
    return bool(wildcard) and f"{PREFIX}__".startswith(stem)


def _configs(
    request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts
) -> Iterator[bytes | str]:
    for value in argv.values(items, argv.MCP_CONFIG):
        if is_inline(value):
            yield value
        else:
            content = facts.files.get(posixpath.join(request.cwd, value))
            if content is not None:
                yield content


def _names_server(source: bytes | str) -> bool:
    try:
        loaded = json.loads(source)
    except ValueError:
        return False
    servers = loaded.get("mcpServers") if isinstance(loaded, dict) else None
    return isinstance(servers, dict) and SERVER in servers


def _rules(value: str) -> list[str]:
    return value.replace(",", " ").split()
