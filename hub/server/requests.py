"""From a request's bytes to typed requests; whatever does not fit exactly is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from amux.hub.errors import InvalidRequest
from amux.hub.leasing import Proof
from amux.hub.values import ForgetRequest, GetRequest, SearchRequest, UpsertRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_NUMBER: Final = 2**53


def parse_object(data: bytes) -> dict[str, object]:
    """Return the JSON object of a body. Raises InvalidRequest."""
    try:
        tree = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not JSON") from error
    if not isinstance(tree, dict):
        raise InvalidRequest("the body is not a JSON object")
    return tree


def search_request(data: bytes) -> SearchRequest:
    """Return the request of `search`. Raises InvalidRequest."""
    body = _Body(parse_object(data), ("query", "path_prefix", "limit", "cursor"))
    return SearchRequest(
        query=body.text("query"),
        path_prefix=body.text("path_prefix", ""),
        limit=body.number("limit", 5),
        cursor=body.optional_text("cursor"),
    )


def get_request(data: bytes) -> GetRequest:
    """Return the request of `get`. Raises InvalidRequest."""
    body = _Body(parse_object(data), ("path", "start_line", "end_line", "offset"))
    return GetRequest(
        path=body.text("path"),
        start_line=body.number("start_line", 0),
        end_line=body.number("end_line", 0),
        offset=body.number("offset", 0),
    )


def upsert_request(data: bytes) -> UpsertRequest:
    """Return the request of `upsert`. Raises InvalidRequest."""
    body = _Body(parse_object(data), ("path", "content", "expected_revision"))
    return UpsertRequest(
        path=body.text("path"),
        content=body.text("content"),
        expected_revision=body.text("expected_revision"),
    )


def forget_request(data: bytes) -> ForgetRequest:
    """Return the request of `forget`. Raises InvalidRequest."""
    body = _Body(parse_object(data), ("path", "expected_revision"))
    return ForgetRequest(path=body.text("path"), expected_revision=body.text("expected_revision"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBody:
    """The body of a call that opens or renews a launch."""

    principal: str | None
    binding: str | None
    renew: bool
    proof: Proof | None


def launch_request(data: bytes) -> LaunchBody:
    """Return whether a launch is opened or renewed, and with what. Raises InvalidRequest."""
    body = _Body(parse_object(data) if data else {}, ("principal", "binding", "renew", "token"))
    principal, binding = body.optional_text("principal"), body.optional_text("binding")
    renew, token = body.flag("renew"), body.optional_text("token")
    proof = None
    if token is not None:
        if not renew or binding is None:
            raise InvalidRequest("token goes with renew and with the binding of its launch")
        proof = Proof(token=token, principal=principal, binding=binding)
    elif renew and (principal is not None or binding is not None):
        raise InvalidRequest("renew goes with neither principal nor binding, but beside a token")
    return LaunchBody(principal=principal, binding=binding, renew=renew, proof=proof)


class _Body:
    """A body whose fields are taken one by one with their types."""

    def __init__(self, fields: Mapping[str, object], known: tuple[str, ...]) -> None:
        self._fields = fields
        for name in fields:
            if name not in known:
                raise InvalidRequest(f"a field is not known here; known are: {', '.join(known)}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if value is None:
            raise InvalidRequest(f"{name} is missing")
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} is not a string")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{name} holds half of a surrogate pair") from error
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def number(self, name: str, default: int) -> int:
        value = self._fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidRequest(f"{name} is not a whole number")
        if not 0 <= value <= _MOST_NUMBER:
            raise InvalidRequest(f"{name} is below 0 or too large")
        return value

    def flag(self, name: str) -> bool:
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} is not true or false")
        return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidRequest("a field stands twice in the body")
    return fields


def _no_constant(_name: str) -> NoReturn:
    raise InvalidRequest("the body holds a number that JSON does not have")
