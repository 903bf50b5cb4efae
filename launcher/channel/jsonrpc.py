"""JSON-RPC over JSON lines (no `"jsonrpc"` member, as Codex speaks it)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from amux.launcher.channel.jsonlines import JsonLinesChannel, dump
from amux.launcher.errors import AgentFailed, ChannelError, DeadlinePassed
from amux.launcher.kinds import expect, seconds
from amux.providers.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amux.launcher.process.spawn import AgentProcess
    from amux.providers.base import JsonObject

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603


class AnswerError(RequestRefused, ChannelError):
    """The agent answered a request with an error; `error` is what it sent."""

    code = ChannelError.code

    def __init__(self, method: str, error: Any) -> None:  # noqa: ANN401  # whatever it sent
        message = error.get("message") if isinstance(error, dict) else error
        number = error.get("code") if isinstance(error, dict) else None
        super().__init__(
            method, number=number if isinstance(number, int) else 0, answer=str(message)
        )
        self.error = error


class ServerRequestRefused(Exception):
    """Raised by a server-request handler: answer with this JSON-RPC error."""

    def __init__(self, message: str, code: int = METHOD_NOT_FOUND) -> None:
        super().__init__(message)
        expect("code", code, int)
        self.rpc_code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """A question that the agent asks its client, such as an approval."""

    method: str
    params: JsonObject


ServerRequestHandler: TypeAlias = "Callable[[ServerRequest], JsonObject]"


def refuse(request: ServerRequest) -> JsonObject:
    """Refuse every question of the agent: the policy where the supervisor has set none."""
    raise ServerRequestRefused(f"{request.method} is not handled by this client")


class JsonRpcChannel(JsonLinesChannel):
    """JSON-RPC over lines. Answers may come in any order and between notifications.

    `handler` answers the agent's own requests, on a thread of its own; by default they are refused.
    `controls` apply to every request from the moment that they are set.
    """

    def __init__(self, process: AgentProcess, handler: ServerRequestHandler = refuse) -> None:
        self.handler = handler
        self._identifier = 0
        self._waiting: set[int] = set()
        self._answers: dict[int, JsonObject] = {}
        self._questions: deque[JsonObject] = deque()
        self._answering: threading.Thread | None = None
        super().__init__(process)

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        """Send a request and return its result; raise AnswerError, ChannelError or AgentFailed."""
        expect("method", method, str)
        expect("params", params, dict)
        (answer,) = self.request_all(((method, params),), deadline=deadline)
        if isinstance(answer, RequestRefused):
            raise answer
        return answer

    def request_all(
        self, calls: Sequence[tuple[str, JsonObject]], *, deadline: float
    ) -> tuple[JsonObject | RequestRefused, ...]:
        """Send every request at once; return each result, or its refusal, in the same order.

        Raises ChannelError or AgentFailed.
        """
        until = time.monotonic() + seconds("deadline", deadline)
        controls = self.controls
        if controls is not None:
            calls = [(method, controls.before(method, params)) for method, params in calls]
        with self._changed:
            first = self._identifier + 1
            self._identifier += len(calls)
            identifiers = range(first, self._identifier + 1)
            self._waiting.update(identifiers)
        try:
            frames = [
                dump({"id": identifier, "method": method, "params": params})
                for identifier, (method, params) in zip(identifiers, calls, strict=True)
            ]
            for frame in frames:
                self._write(frame, max(0.0, until - time.monotonic()))
            found = [
                self._result(self._await(identifier, method, until, deadline), method)
                for identifier, (method, _) in zip(identifiers, calls, strict=True)
            ]
        finally:
            with self._changed:
                for identifier in identifiers:
                    self._waiting.discard(identifier)
                    self._answers.pop(identifier, None)
        if controls is not None:
            for (method, _), answer in zip(calls, found, strict=True):
                if not isinstance(answer, RequestRefused):
                    controls.after(method, answer)
        return tuple(found)

    def _result(self, answer: JsonObject, method: str) -> JsonObject | RequestRefused:
        if "error" in answer:
            return AnswerError(method, answer["error"])
        result = answer.get("result")
        return result if isinstance(result, dict) else {"result": result}

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification."""
        expect("method", method, str)
        expect("params", params, dict, type(None))
        self.send({"method": method} if params is None else {"method": method, "params": params})

    def _held(self, message: JsonObject) -> JsonObject:
        """Return the message as the controls let it be sent; they never see its result."""
        if self.controls is None or "method" not in message:
            return message
        params = self.controls.before(str(message["method"]), message.get("params") or {})
        return {**message, "params": params} if "params" in message else message

    def _await(self, identifier: int, method: str, until: float, deadline: float) -> JsonObject:
        with self._changed:
            while identifier not in self._answers:
                if self._ended is not None:
                    raise self._end_error(self._ended)
                left = until - time.monotonic()
                if left <= 0:
                    raise DeadlinePassed(
                        f"no answer to {method} within {deadline:g} s; "
                        f"the end of the agent's stderr:\n{self._process.stderr_tail()}"
                    )
                self._changed.wait(left)
            return self._answers[identifier]

    def _take(self, message: JsonObject, size: int) -> None:
        if "method" in message and "id" in message:
            self._ask(message)
        elif "method" in message:
            self._put(message, size)
        elif "id" in message and ("result" in message or "error" in message):
            with self._changed:
                # An answer that came after its deadline has nobody waiting.
                identifier = message["id"]
                if type(identifier) is int and identifier in self._waiting:
                    self._answers[identifier] = message
                    self._changed.notify_all()
        else:
            self._put(message, size)

    def _ask(self, message: JsonObject) -> None:
        with self._changed:
            self._questions.append(message)
            if self._answering is None:
                self._answering = threading.Thread(
                    target=self._answer, name=f"amux-answers-{self._process.pid}", daemon=True
                )
                self._answering.start()
            self._changed.notify_all()

    def _answer(self) -> None:
        """Answer the agent's requests, one after another, until the channel ends."""
        while True:
            with self._changed:
                while not self._questions and self._ended is None:
                    self._changed.wait()
                if not self._questions:
                    return
                message = self._questions.popleft()
            with contextlib.suppress(ChannelError, AgentFailed):
                self.send({"id": message["id"], **self._decide(message)})

    def _decide(self, message: JsonObject) -> JsonObject:
        params = message.get("params")
        question = ServerRequest(
            method=str(message["method"]), params=params if isinstance(params, dict) else {}
        )
        try:
            decided = {"result": self.handler(question)}
            dump(decided)  # what cannot be sent is the handler's mistake, like any other
        except ServerRequestRefused as error:
            return {"error": {"code": error.rpc_code, "message": str(error)}}
        except Exception as error:  # noqa: BLE001  # the supervisor's code; the agent must get an answer
            text = f"{type(error).__name__} in the client's handler"
            return {"error": {"code": INTERNAL_ERROR, "message": text}}
        return decided
