"""What Claude itself says of a launch: its effective settings, its MCP servers, its `init`.

Control requests of the stream-json channel are answered before any turn, without a model
request. Only the literal value that the launch set counts as off.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from providers.base import Evidence
from providers.claude.settings import OFF, SWITCH
from providers.errors import NotConfirmed, RequestRefused

if TYPE_CHECKING:
    from providers.base import Channel, JsonObject

SETTINGS_DEADLINE: Final = 30.0
TOOLS_DEADLINE: Final = 15.0
SERVER: Final = "amux"
SETTINGS_ID: Final = "amux-settings"
TOOLS_ID: Final = "amux-tools"
AUTO_MEMORY: Final = "auto memory"
TOOLS: Final = "memory tools"


def ask(channel: Channel, subtype: str, request_id: str, *, deadline: float) -> JsonObject:
    """Send one control request and return the answer's body; raise RequestRefused for an error."""
    channel.send(
        {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype}}
    )
    while True:
        message = channel.receive(deadline=deadline)
        response = message.get("response")
        if message.get("type") != "control_response" or not isinstance(response, dict):
            continue
        if response.get("request_id") != request_id:
            continue
        if response.get("subtype") != "success":
            raise RequestRefused(subtype, number=0, answer=str(response.get("error")))
        body = response.get("response")
        return body if isinstance(body, dict) else {}


def memory_off(channel: Channel) -> Evidence:
    """Ask for the effective settings; raise NotConfirmed unless they switch auto memory off."""
    try:
        answer = ask(channel, "get_settings", SETTINGS_ID, deadline=SETTINGS_DEADLINE)
    except RequestRefused as error:
        message = "this version does not tell its effective settings"
        raise NotConfirmed(message, answer=error.answer) from error
    seen = _environment(answer.get("effective")).get(SWITCH)
    if seen != OFF:
        message = f"Claude's effective settings do not have {SWITCH}={OFF}{_blame(answer)}"
        raise NotConfirmed(message, answer=json.dumps(seen))
    return Evidence(
        control=AUTO_MEMORY, observed="off", source=f"get_settings effective.env.{SWITCH}={OFF}"
    )


def tools_loaded(channel: Channel) -> Evidence:
    """Ask whether the memory tools' server is connected."""
    try:
        answer = ask(channel, "mcp_status", TOOLS_ID, deadline=TOOLS_DEADLINE)
    except RequestRefused as error:
        return Evidence(control=TOOLS, observed="not told", source=f"mcp_status: {error.answer}")
    return _server(answer.get("mcpServers"), "mcp_status")


def initial(message: JsonObject) -> tuple[Evidence, ...]:
    """Read the `init` event; raise NotConfirmed if it names an auto memory folder."""
    paths = message.get("memory_paths")
    if isinstance(paths, dict) and paths.get("auto"):
        text = "Claude's init event names an automatic memory folder"
        raise NotConfirmed(text, answer=json.dumps(paths))
    absent = Evidence(control=AUTO_MEMORY, observed="off", source="init without memory_paths.auto")
    return (absent, _server(message.get("mcp_servers"), "init mcp_servers"))


def _server(servers: object, source: str) -> Evidence:
    for server in servers if isinstance(servers, list) else []:
        if isinstance(server, dict) and server.get("name") == SERVER:
            return Evidence(control=TOOLS, observed=str(server.get("status")), source=source)
    return Evidence(control=TOOLS, observed="absent", source=source)


def _environment(settings: object) -> dict[str, Any]:
    env = settings.get("env") if isinstance(settings, dict) else None
    return env if isinstance(env, dict) else {}


def _blame(answer: JsonObject) -> str:
    """Name the layer that set the value last, for the person who has to change it."""
    sources = answer.get("sources")
    named = [
        str(one.get("source"))
        for one in (sources if isinstance(sources, list) else [])
        if isinstance(one, dict) and SWITCH in _environment(one.get("settings"))
    ]
    return f": {named[-1]} sets it last" if named else ""
