"""The five tools as an MCP client lists them. This list never changes within a version.

Names are dotted; agents show them as `mcp__amux__amux_memory_search` and the like.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Schema = dict[str, object]

PATH: Schema = {
    "type": "string",
    "description": "Logical path of a Markdown document in memory, such as MEMORY.md or"
    " projects/amux/decisions.md. It is not a local file.",
}
REVISION: Schema = {
    "type": "string",
    "description": "The revision that amux.memory_get or amux.memory_search gave for this document",
}


def _tool(  # noqa: PLR0913  # a tool's fields, each named at its place
    name: str,
    title: str,
    description: str,
    *,
    properties: dict[str, Schema],
    required: list[str],
    read_only: bool = False,
    destructive: bool = False,
) -> dict[str, object]:
    annotations: dict[str, object] = {
        "title": title,
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": True,  # the Hub takes a repeated write for done, and never twice
        "openWorldHint": False,
    }
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        "annotations": annotations,
    }


SEARCH = _tool(
    "amux.memory_search",
    "Search memory",
    "Find memory documents that hold any of the query's words. Words are literal (no wildcards,"
    " no synonyms): when nothing is found, try other words. Returns path, best line, snippet,"
    " revision and age in days of each match.",
    properties={
        "query": {"type": "string", "description": "1 to 16 words, at most 512 bytes"},
        "path_prefix": {
            "type": "string",
            "description": "Only documents below this folder, such as projects/amux",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "How many documents at most (default 5)",
        },
        "cursor": {
            "type": "string",
            "description": "Continues an incomplete search: the cursor of its answer, with the"
            " same query and path_prefix",
        },
    },
    required=["query"],
    read_only=True,
)

GET = _tool(
    "amux.memory_get",
    "Read memory",
    "Read a memory document, or some lines of it. Returns text, revision, and next_offset when"
    ' truncated. A document that does not exist is {"exists": false, "revision": "absent"}.',
    properties={
        "path": PATH,
        "start_line": {
            "type": "integer",
            "minimum": 0,
            "description": "First line, from 1 (default: the beginning)",
        },
        "end_line": {
            "type": "integer",
            "minimum": 0,
            "description": "Last line, included (default: as far as the answer may go)",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "Continues a truncated answer: its next_offset, with the same path and"
            " end_line and no start_line",
        },
    },
    required=["path"],
    read_only=True,
)

UPSERT = _tool(
    "amux.memory_upsert",
    "Save memory",
    "Create or replace one memory document, whole. Read it first and pass its revision; on a"
    " conflict read it again and merge. It is saved only if this call succeeds. Never save"
    " secrets.",
    properties={
        "path": PATH,
        "content": {"type": "string", "description": "The complete new text, in Markdown"},
        "expected_revision": {
            "type": "string",
            "description": "The revision that amux.memory_get gave for this document, or absent"
            " to create it",
        },
    },
    required=["path", "content", "expected_revision"],
    # It replaces only the revision that the caller has read, and names.
    destructive=False,
)

FORGET = _tool(
    "amux.memory_forget",
    "Forget memory",
    "Delete one memory document. Look for other documents and for lines in MEMORY.md that say"
    " the same thing.",
    properties={"path": PATH, "expected_revision": REVISION},
    required=["path", "expected_revision"],
    destructive=True,
)

CONTINUE = _tool(
    "amux.result_continue",
    "Continue a long answer",
    "Return the next page of an answer that said it goes on. Append its text to what you have.",
    properties={
        "token": {"type": "string", "description": "The token at the end of the page before"}
    },
    required=["token"],
    read_only=True,
)

LISTS = {"1": [SEARCH, GET, UPSERT, FORGET, CONTINUE]}
"""Every list that was ever offered: a session keeps the one it began with, byte for byte."""
LATEST = "1"
TOOLS = LISTS[LATEST]

VERBS = {
    "amux.memory_search": "search",
    "amux.memory_get": "get",
    "amux.memory_upsert": "upsert",
    "amux.memory_forget": "forget",
}
