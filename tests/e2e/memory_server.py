"""A small MCP server with the memory tools' names; it says what it was started with."""

import json
import os
import sys
import time

NAMES = (
    "amux.memory_search",
    "amux.memory_get",
    "amux.memory_upsert",
    "amux.memory_forget",
    "amux.result_continue",
)
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}


def answer(method: str, params: dict[str, str]) -> dict[str, object] | None:
    """Return the result of one request; None for a method that it does not know."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "memory", "version": "1"},
        }
    if method == "tools/list":
        tools = [{"name": name, "description": name, "inputSchema": SCHEMA} for name in NAMES]
        return {"tools": tools}
    if method == "tools/call":
        seen = {
            "tool": params["name"],
            "binding": os.environ.get("AMUX_MEMORY_BINDING"),
            "connection": os.environ.get("AMUX_CONNECTION"),
        }
        return {"content": [{"type": "text", "text": json.dumps(seen)}]}
    return None


if "--slow" in sys.argv:
    time.sleep(1.5)  # a machine under load

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        body = {"error": {"code": -32601, "message": "unknown"}} if result is None else {}
        reply = {"jsonrpc": "2.0", "id": request["id"], **body}
        if result is not None:
            reply["result"] = result
        print(json.dumps(reply), flush=True)  # noqa: T201  # stdout is the channel
