"""Control requests of the program that drives Claude, held to what the launch confirmed.

On Claude's stream `initialize` can replace the appended text, `apply_flag_settings` and
`update_environment_variables` can switch auto memory on again, and settings, a main agent and the
MCP requests can take the memory tools away. What can be kept without a loss is kept; the rest is
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amux.providers.claude.settings import OFF, SWITCH, turns_memory_on
from amux.providers.claude.tools import SERVER, concerns_tools
from amux.providers.errors import BadArguments

if TYPE_CHECKING:
    from amux.providers.base import JsonObject

APPEND: Final = "appendSystemPrompt"
SUBAGENT: Final = "appendSubagentSystemPrompt"
SNAPSHOT: Final = "systemPromptSnapshot"
SDK_SERVERS: Final = ("sdkMcpServers", "sdkMcpServerConfigs", "sdkMcpServerManifests")
POLICIES: Final = (
    "allowedMcpServers",
    "deniedMcpServers",
    "allowManagedMcpServersOnly",
    "allowManagedPermissionRulesOnly",
    "strictPluginOnlyCustomization",
)
"""Settings that can leave the memory tools out."""
TAKEN: Final = f"the MCP server {SERVER} is the launch's own, with the memory tools: leave it"


def bind_request(message: JsonObject, instructions: str) -> JsonObject:
    """Return one message of the supervisor's as it may be sent; raise BadArguments."""
    if message.get("type") == "update_environment_variables":
        return _variables(message)
    request = message.get("request")
    if message.get("type") != "control_request" or not isinstance(request, dict):
        return message
    match request.get("subtype"):
        case "initialize":
            return {**message, "request": _initialize(request, instructions)}
        case "apply_flag_settings":
            return {**message, "request": _settings(request)}
        case "update_settings":  # it writes the user's own file: refused or left as it is
            _settings(request)
        case "mcp_set_servers" | "mcp_toggle":
            _servers(request)
    return message


def error_response(message: JsonObject, reason: str) -> JsonObject | None:
    """Return Claude's kind of error for a control request; other messages have no answer."""
    if message.get("type") != "control_request":
        return None
    said = {"subtype": "error", "request_id": message.get("request_id"), "error": f"amux: {reason}"}
    return {"type": "control_response", "response": said}


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
    if any(SERVER in (request.get(name) or ()) for name in SDK_SERVERS):
        raise BadArguments(TAKEN)
    if SNAPSHOT in request:
        changed[SNAPSHOT] = False
    return changed


def _settings(request: JsonObject) -> JsonObject:
    found = request.get("settings")
    if not isinstance(found, dict):
        return request
    if turns_memory_on((found,)):
        raise BadArguments(f"these settings switch Claude's own memory on; leave {SWITCH} out")
    _keep_tools(found)
    env = found.get("env")
    if not isinstance(env, dict):
        return request
    return {**request, "settings": {**found, "env": {**env, SWITCH: OFF}}}


def _keep_tools(found: dict[str, Any]) -> None:
    """Refuse settings under which Claude may no longer offer the memory tools."""
    if found.get("agent") is not None:
        message = (
            "a main agent can take the memory tools away; give it to the launch as --agent, "
            "where Claude is asked what it leaves"
        )
        raise BadArguments(message)
    for name in POLICIES:
        if found.get(name) is not None:
            raise BadArguments(f"{name} can leave the memory tools out; leave it to the launch")
    permissions = found.get("permissions")
    rules = permissions.get("deny") if isinstance(permissions, dict) else None
    for rule in rules if isinstance(rules, list) else ():
        if concerns_tools(str(rule)):
            raise BadArguments(f"the rule {rule} denies the memory tools; leave it out")


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
        raise BadArguments(TAKEN)
