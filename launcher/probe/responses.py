"""The Responses API as Codex and Pi use it."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING

from amux.launcher.probe.turns import (
    Answer,
    Call,
    Compaction,
    JsonObject,
    ModelApi,
    Say,
    ToolOffer,
    ToolResult,
    Turn,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SYSTEM_ROLES = frozenset({"system", "developer"})


class ResponsesApi(ModelApi):
    """Reads `POST …/responses` and answers with its server-sent events."""

    name = "responses"
    suffix = "/responses"

    def read(self, path: str, headers: Mapping[str, str], body: JsonObject) -> Turn:
        """Read a request body into a Turn."""
        system = [body.get("instructions") or ""]
        user: list[str] = []
        results: list[ToolResult] = []
        for item in _items(body.get("input")):
            kind = item.get("type", "message")
            if kind == "message":
                place = system if item.get("role") in SYSTEM_ROLES else user
                if item.get("role") != "assistant":
                    place.append(text_of(item.get("content")))
            elif kind in {"function_call_output", "custom_tool_call_output"}:
                results.append(ToolResult(item.get("call_id", ""), text_of(item.get("output"))))
        return Turn(
            api=self.name,
            path=path,
            headers=headers,
            body=body,
            system="\n".join(part for part in system if part),
            user=tuple(user),
            tools=tuple(_offers(body.get("tools") or [])),
            results=tuple(results),
            received=time.monotonic(),
        )

    def events(self, answers: tuple[Answer, ...], turn: Turn) -> Iterable[tuple[str, JsonObject]]:
        """Yield the events of one response that carries all answers as output items."""
        response_id = f"resp_{uuid.uuid4().hex}"
        envelope: JsonObject = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": turn.body.get("model", "scripted"),
            "status": "in_progress",
            "output": [],
        }
        items = [_item(answer) for answer in answers]
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        }
        finished = {**envelope, "status": "completed", "output": items, "usage": usage}
        sequence = [("response.created", {"response": envelope})]
        for index, item in enumerate(items):
            sequence.extend(_item_events(index, item))
        sequence.append(("response.completed", {"response": finished}))
        for number, (name, data) in enumerate(sequence):
            yield name, {"type": name, "sequence_number": number, **data}


def _items(value: object) -> Iterator[JsonObject]:
    if isinstance(value, str):
        yield {"type": "message", "role": "user", "content": value}
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _offers(tools: list[JsonObject], namespace: str | None = None) -> Iterator[ToolOffer]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _offers(tool.get("tools", []), tool.get("name"))
        elif isinstance(tool.get("name"), str):
            freeform = tool.get("type") == "custom"
            yield ToolOffer(tool["name"], namespace, tool.get("description") or "", freeform)


def _item(answer: Answer) -> JsonObject:
    identity = uuid.uuid4().hex
    match answer:
        case Say(text):
            return {
                "type": "message",
                "id": f"msg_{identity}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        case Compaction(content):
            return {"type": "compaction", "id": f"cmp_{identity}", "encrypted_content": content}
        case Call(tool, arguments):
            call: JsonObject = {
                "type": "function_call",
                "id": f"fc_{identity}",
                "call_id": f"call_{identity}",
                "name": tool.name,
                "arguments": json.dumps(arguments, ensure_ascii=False),
                "status": "completed",
            }
            if tool.namespace is not None:
                call["namespace"] = tool.namespace
            return call


def _item_events(index: int, item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        yield (
            "response.output_item.added",
            {"output_index": index, "item": item | {"arguments": ""}},
        )
        delta = {**place, "delta": item["arguments"]}
        yield "response.function_call_arguments.delta", delta
        done = {**place, "arguments": item["arguments"]}
        yield "response.function_call_arguments.done", done
    elif item["type"] == "message":
        part = item["content"][0]
        where = {**place, "content_index": 0}
        empty = {**part, "text": ""}
        begun = item | {"content": []}
        yield "response.output_item.added", {"output_index": index, "item": begun}
        yield "response.content_part.added", {**where, "part": empty}
        yield "response.output_text.delta", {**where, "delta": part["text"]}
        yield "response.output_text.done", {**where, "text": part["text"]}
        yield "response.content_part.done", {**where, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}
