"""The Messages API as Claude Code uses it."""

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


class MessagesApi(ModelApi):
    """Reads `POST …/messages` and answers with its server-sent events."""

    name = "messages"
    suffix = "/messages"

    def read(self, path: str, headers: Mapping[str, str], body: JsonObject) -> Turn:
        """Read a request body into a Turn."""
        system = [text_of(body.get("system"))]
        user: list[str] = []
        results: list[ToolResult] = []
        for message in body.get("messages") or []:
            content = message.get("content")
            if message.get("role") == "system":
                system.append(text_of(content))
            elif message.get("role") == "user":
                user.append(text_of(content))
                results.extend(_results(content))
        return Turn(
            api=self.name,
            path=path,
            headers=headers,
            body=body,
            system="\n".join(part for part in system if part),
            user=tuple(part for part in user if part),
            tools=tuple(
                ToolOffer(tool["name"], None, tool.get("description") or "")
                for tool in body.get("tools") or []
                if isinstance(tool.get("name"), str)
            ),
            results=tuple(results),
            received=time.monotonic(),
        )

    def events(self, answers: tuple[Answer, ...], turn: Turn) -> Iterable[tuple[str, JsonObject]]:
        """Yield the events of one message that carries all answers as content blocks."""
        calls = any(isinstance(answer, Call) for answer in answers)
        message: JsonObject = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": turn.body.get("model", "scripted"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        sequence: list[tuple[str, JsonObject]] = [("message_start", {"message": message})]
        for index, answer in enumerate(answers):
            sequence.extend(_block_events(index, answer))
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        sequence.append(("message_delta", {"delta": stop, "usage": {"output_tokens": 5}}))
        sequence.append(("message_stop", {}))
        for name, data in sequence:
            yield name, {"type": name, **data}


def _results(content: object) -> Iterator[ToolResult]:
    if isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and part.get("type") == "tool_result":
                yield ToolResult(part.get("tool_use_id", ""), text_of(part.get("content")))


def _block_events(index: int, answer: Answer) -> Iterator[tuple[str, JsonObject]]:
    match answer:
        case Say(text):
            block: JsonObject = {"type": "text", "text": ""}
            delta: JsonObject = {"type": "text_delta", "text": text}
        case Compaction():
            raise ValueError("the Messages API has no remote compaction")
        case Call(tool, arguments):
            call_id = f"toolu_{uuid.uuid4().hex}"
            block = {"type": "tool_use", "id": call_id, "name": tool.full_name, "input": {}}
            sent = json.dumps(arguments, ensure_ascii=False)
            delta = {"type": "input_json_delta", "partial_json": sent}
    yield "content_block_start", {"index": index, "content_block": block}
    yield "content_block_delta", {"index": index, "delta": delta}
    yield "content_block_stop", {"index": index}
