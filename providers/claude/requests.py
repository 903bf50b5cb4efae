"""A supervisor's own control requests, held to what its launch confirmed.

On Claude's stream `initialize` can replace the appended text, `apply_flag_settings` and
`update_environment_variables` can switch auto memory on again, and the MCP requests can take the
memory tools away. What can be kept without a loss is kept; the rest is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from providers.claude.settings import OFF, SWITCH, turns_memory_on
from providers.claude.tools import SERVER
from providers.errors import BadArguments

if TYPE_CHECKING:
    from providers.base import JsonObject

APPEND: Final = "appendSystemPrompt"
SUBAGENT: Final = "appendSubagentSystemPrompt"
SNAPSHOT: Final = "systemPromptSnapshot"


def held(message: JsonObject, instructions: str) -> JsonObject:
    """Return one message of the supervisor's as it may be sent; raise BadArguments."""
    if message.get("type") == "update_environment_variables":
        return _variables(message)
    request = message.get("request")
    if message.get("type") != "control_request" or not isinstance(request, dict):
        return message
    match request.get("subtype"):
        case "initialize":
            return {**message, "request": _initialize(request, instructions)}
        case "apply_flag_settings" | "update_settings":
            return {**message, "request": _settings(request)}
        case "mcp_set_servers" | "mcp_toggle":
            _servers(request)
    return message


def _initialize(request: JsonObject, instructions: str) -> JsonObject:
    changed: dict[str, Any] = dict(request)
    text = request.get(APPEND)
    if text is not None:
        if str(text) not in instructions:
            message = (
                f"initialize with {APPEND} would replace the text of the session; give it to the "
                "launch as --append-system-prompt"
            )
            raise BadArguments(message)
        changed[APPEND] = instructions
    if request.get(SUBAGENT) is not None:
        message = (
            f"initialize with {SUBAGENT} would replace the protocol of sub-agents; give it to the "
            "launch as --append-subagent-system-prompt"
        )
        raise BadArguments(message)
    if SNAPSHOT in request:
        changed[SNAPSHOT] = False
    return changed


def _settings(request: JsonObject) -> JsonObject:
    found = request.get("settings")
    if not isinstance(found, dict):
        return request
    if turns_memory_on((found,)):
        raise BadArguments(f"these settings switch Claude's own memory on; leave {SWITCH} out")
    env = found.get("env")
    if not isinstance(env, dict):
        return request
    return {**request, "settings": {**found, "env": {**env, SWITCH: OFF}}}


def _variables(message: JsonObject) -> JsonObject:
    variables = message.get("variables")
    if isinstance(variables, dict) and variables.get(SWITCH, OFF) != OFF:
        raise BadArguments(f"{SWITCH} is the launch's own: leave it out")
    return message


def _servers(request: JsonObject) -> None:
    servers = request.get("servers")
    replaced = isinstance(servers, dict) and SERVER in servers
    switched_off = request.get("serverName") == SERVER and request.get("enabled") is not True
    if replaced or switched_off:
        message = f"the MCP server {SERVER} is the launch's own, with the memory tools: leave it"
        raise BadArguments(message)
