"""What Claude itself says of a launch: its effective settings, its MCP servers, its `init`.

Control requests of the stream-json channel are answered before any turn, without a model
request. Only what Claude itself takes for true counts as off.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from amux.providers.base import MEMORY_TOOLS, VERSION, Evidence, Sighting
from amux.providers.claude.settings import OFF, SWITCH
from amux.providers.claude.tools import PREFIX, SERVER
from amux.providers.errors import NotConfirmed, RequestRefused, ToolsNotLoaded

if TYPE_CHECKING:
    from amux.providers.base import Channel, JsonObject

SETTINGS_DEADLINE: Final = 30.0
TOOLS_DEADLINE: Final = 15.0
SETTINGS_ID: Final = "amux-settings"
TOOLS_ID: Final = "amux-tools"
VERSION_ID: Final = "amux-version"
SAID: Final = "claude_code_version"
AUTO_MEMORY: Final = "auto memory"
TOOLS: Final = "memory tools"
CONNECTED: Final = "connected"
ABSENT: Final = "absent"
TRUE: Final = frozenset(["1", "true", "yes", "on"])
"""What Claude takes for true in a variable, in any case."""
PENDING: Final = "pending"
REFUSED: Final = frozenset([ABSENT, "disabled"])


def ask(channel: Channel, subtype: str, request_id: str, *, deadline: float) -> JsonObject:
    """Send one control request and return the answer's body; raise RequestRefused for an error."""
    channel.send(
        {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype}}
    )
    others: list[JsonObject] = []
    while (
        response := _response(message := channel.receive(deadline=deadline), request_id)
    ) is None:
        others.append(message)
    channel.put_back(others)
    if response.get("subtype") != "success":
        raise RequestRefused(subtype, number=0, answer=str(response.get("error")))
    body = response.get("response")
    return body if isinstance(body, dict) else {}


def read_settings(channel: Channel) -> JsonObject:
    """Ask for the settings, effective and of each source; raise NotConfirmed without an answer."""
    try:
        return ask(channel, "get_settings", SETTINGS_ID, deadline=SETTINGS_DEADLINE)
    except RequestRefused as error:
        message = "this version does not tell its effective settings"
        raise NotConfirmed(message, answer=error.answer) from error


def memory_off_evidence(answer: JsonObject) -> Evidence:
    """Read the settings; raise NotConfirmed unless the effective ones switch auto memory off."""
    seen = _environment(answer.get("effective")).get(SWITCH)
    if not isinstance(seen, str) or seen.strip().lower() not in TRUE:
        message = f"Claude's effective settings do not have {SWITCH}={OFF}{_blame(answer)}"
        raise NotConfirmed(message, answer=json.dumps(seen))
    return Evidence(
        control=AUTO_MEMORY, observed="off", source=f"get_settings effective.env.{SWITCH}={seen}"
    )


def tools_loaded(channel: Channel, *, resumed: bool) -> tuple[Evidence, tuple[str, ...]]:
    """Ask whether the memory tools' server is connected; return what was seen, and warnings.

    Claude itself waits up to 5 s for the server. Raises ToolsNotLoaded where it failed or is not
    there; a resumed session, which may have no credential, is warned of instead.
    """
    try:
        answer = ask(channel, "mcp_status", TOOLS_ID, deadline=TOOLS_DEADLINE)
    except RequestRefused as error:
        seen = Evidence(control=TOOLS, observed="not told", source=f"mcp_status: {error.answer}")
        return seen, ("this version of Claude does not tell whether it loaded the memory tools",)
    seen = _server(answer.get("mcpServers"), "mcp_status")
    if seen.observed == CONNECTED:
        return seen, ()
    message = f"Claude has not loaded the memory tools: the server {SERVER} is {seen.observed}"
    if resumed or seen.observed == PENDING:
        return seen, (message,)
    raise ToolsNotLoaded(f"{message}; see `claude mcp list` and managed settings")


def tools_allowed(channel: Channel, *, resumed: bool) -> tuple[Evidence, tuple[str, ...]]:
    """Ask a pre-flight whether the memory tools' server may run; return what was seen, warnings.

    A server that a policy or a mode leaves out is not listed at all. Whether it works is not asked:
    its connection is not there yet. Raises ToolsNotLoaded, or for a resumed session warns.
    """
    try:
        answer = ask(channel, "mcp_status", TOOLS_ID, deadline=TOOLS_DEADLINE)
    except RequestRefused as error:
        return Evidence(
            control=TOOLS, observed="not told", source=f"mcp_status: {error.answer}"
        ), ()
    seen = _server(answer.get("mcpServers"), "mcp_status")
    if seen.observed not in REFUSED:
        return Evidence(control=TOOLS, observed="allowed", source="mcp_status"), ()
    message = f"Claude leaves the memory tools out: the server {SERVER} is {seen.observed}"
    if resumed:
        return seen, (message,)
    raise ToolsNotLoaded(f"{message}; see the launch's own options and managed settings")


def version(channel: Channel) -> str:
    """Return the version that a pre-flight's Claude says that it is; empty where it does not."""
    try:
        answer = ask(channel, "initialize", VERSION_ID, deadline=SETTINGS_DEADLINE)
    except RequestRefused:
        return ""
    return str(answer.get(SAID) or "")


def read_init(message: JsonObject) -> tuple[Evidence | Sighting, ...]:
    """Read the `init` event; raise NotConfirmed if it names an auto memory folder.

    A conversation without a memory tool is a sighting, which contradicts its launch.
    """
    paths = message.get("memory_paths")
    if isinstance(paths, dict) and paths.get("auto"):
        text = "Claude's init event names an automatic memory folder"
        raise NotConfirmed(text, answer=json.dumps(paths))
    absent = Evidence(control=AUTO_MEMORY, observed="off", source="init without memory_paths.auto")
    server = _server(message.get("mcp_servers"), "init mcp_servers")
    offered = message.get("tools")
    mine = [
        name
        for name in (offered if isinstance(offered, list) else [])
        if str(name).startswith(f"{PREFIX}__")
    ]
    count = Evidence(control="memory tools offered", observed=str(len(mine)), source="init tools")
    said = message.get(SAID)
    known = (Evidence(control=VERSION, observed=str(said), source=f"init {SAID}"),) if said else ()
    if mine or server.observed == PENDING:
        return (absent, server, count, *known)
    none = Sighting(
        control=MEMORY_TOOLS,
        observed="none offered",
        source="init tools",
        contradicts="Claude offers none of the memory tools in this conversation: its server "
        f"{SERVER} is {server.observed}",
    )
    # A server that is connected and offers nothing is not what a reader takes the word for.
    servers = () if server.observed == CONNECTED else (server,)
    return (absent, *servers, count, *known, none)


def _response(message: JsonObject, request_id: str) -> JsonObject | None:
    response = message.get("response")
    if message.get("type") != "control_response" or not isinstance(response, dict):
        return None
    return response if response.get("request_id") == request_id else None


def _server(servers: object, source: str) -> Evidence:
    for server in servers if isinstance(servers, list) else []:
        if isinstance(server, dict) and server.get("name") == SERVER:
            return Evidence(control=TOOLS, observed=str(server.get("status")), source=source)
    return Evidence(control=TOOLS, observed=ABSENT, source=source)


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
