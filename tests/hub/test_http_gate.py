"""What stands before a call: Host, Origin, sizes, malformed HTTP and malformed JSON."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amux.hub.client import HubClient
from amux.hub.connection import Connection
from amux.hub.errors import LimitExceeded, Unavailable
from amux.hub.unixsocket import connect
from amux.hub.values import UpsertRequest
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from amux.hub.connection import Role
    from fixtures.hubs import HubHome


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("amux", 200),
        ("LOCALHOST:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1", 421),
        ("", 421),
        ("[::1]", 421),
    ],
)
def test_only_a_known_host_is_answered(shared_hub: HubHome, host: str, status: int) -> None:
    reply = shared_hub.call("GET", "/v1/health", headers={"Host": host})
    assert reply.status == status


def test_a_host_that_stands_twice_is_refused(shared_hub: HubHome) -> None:
    head = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert _status(_exchange(shared_hub, head)) in {400, 421}


@pytest.mark.parametrize("origin", ["http://localhost", "null", "https://evil.example", ""])
def test_every_origin_is_refused_also_with_a_good_credential(
    shared_hub: HubHome, origin: str
) -> None:
    reply = shared_hub.call(
        "GET", "/v1/health", token=shared_hub.token("user"), headers={"Origin": origin}
    )
    assert (reply.status, reply.code) == (403, "forbidden")


def test_health_without_a_credential_says_the_version_and_nothing_else(shared_hub: HubHome) -> None:
    assert set(shared_hub.call("GET", "/v1/health").fields) == {"version"}
    known = shared_hub.call("GET", "/v1/health", token=shared_hub.token("runtime")).fields
    assert set(known) == {"version", "policy", "enabled"}


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer amux_user_0123456789abcdef_",
        "Bearer " + "x" * 4096,
        "amux_user_0123456789abcdef_" + "A" * 43,
    ],
)
def test_what_is_no_credential_is_unauthenticated(shared_hub: HubHome, value: str) -> None:
    reply = shared_hub.call("GET", "/v1/memory/capability", headers={"Authorization": value})
    assert (reply.status, reply.code) == (401, "unauthenticated")


def test_two_credentials_in_one_call_are_refused(shared_hub: HubHome) -> None:
    line = f"Authorization: Bearer {shared_hub.token('user')}\r\n".encode()
    head = b"GET /v1/memory/capability HTTP/1.1\r\nHost: localhost\r\n" + line + line + b"\r\n"
    assert _status(_exchange(shared_hub, head)) == 401


def test_unknown_calls_tell_strangers_nothing_and_callers_that_there_is_none(
    shared_hub: HubHome,
) -> None:
    user = shared_hub.token("user")
    assert shared_hub.call("GET", "/v1/secrets").status == 401
    assert shared_hub.call("GET", "/v1/secrets", token=user).status == 404
    assert shared_hub.call("GET", "/v1/memory/get", token=user).status == 405
    assert shared_hub.call("GET", "/v1/health/", token=user).status == 404


def test_a_body_over_its_bound_is_refused_with_the_bound(shared_hub: HubHome) -> None:
    reply = shared_hub.call(
        "POST", "/v1/memory/upsert", b"x" * (512 * 1024 + 1), token=shared_hub.token("user")
    )
    assert (reply.status, reply.code) == (413, "limit_exceeded")
    error = reply.fields["error"]
    assert isinstance(error, dict)
    assert (error["limit"], error["maximum"], error["size"]) == (
        "request_body",
        512 * 1024,
        512 * 1024 + 1,
    )


def test_a_refusal_reaches_a_client_that_sends_its_whole_body_first(shared_hub: HubHome) -> None:
    reply = shared_hub.call("POST", "/v1/memory/upsert", b"x" * (400 * 1024))
    assert reply.status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"path": "a.md"} x',
        b'{"path": NaN}',
        b'{"path": "a.md", "path": "b.md"}',
        b'{"path": "a.md", "scope": "global"}',
        b'{"path": "a.md", "principal": "bob"}',
        b'{"path": 7}',
        b'{"path": null}',
        b'{"path": "\\ud800.md"}',
        b'{"path": "a.md", "start_line": true}',
        b'{"path": "a.md", "start_line": -1}',
        b'{"path": "a.md", "offset": 1e3}',
        b'{"path": "a.md", "offset": 99999999999999999999999}',
        b'{"path": "a.md", "offset": ' + b"9" * 5000 + b"}",
        b'\xff\xfe{"path": "a.md"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
)
def test_a_body_that_does_not_fit_exactly_is_an_invalid_request(
    shared_hub: HubHome, body: bytes
) -> None:
    reply = shared_hub.call("POST", "/v1/memory/get", body, token=shared_hub.token("user"))
    assert (reply.status, reply.code) == (400, "invalid_request")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "path",
        "content",
        "expected_revision",
        "query",
        "path_prefix",
        "limit",
        "cursor",
        "start_line",
        "end_line",
        "offset",
        "principal",
        "binding",
        "renew",
        "memory.enabled",
    ]
)
LIKELY = st.dictionaries(FIELDS, JSON | st.sampled_from(["a.md", "MEMORY.md", "absent", "tea"]))
BODIES = st.binary(max_size=300) | (JSON | LIKELY).map(lambda tree: json.dumps(tree).encode())
CALLS: st.SearchStrategy[tuple[str, str, Role]] = st.sampled_from(
    [
        ("POST", "/v1/memory/search", "user"),
        ("POST", "/v1/memory/get", "user"),
        ("POST", "/v1/memory/upsert", "user"),
        ("POST", "/v1/memory/forget", "user"),
        ("PUT", "/v1/launches/fuzz", "runtime"),
        ("PUT", "/v1/system/config", "admin"),
    ]
)
FUZZ = settings(
    max_examples=400,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(call=CALLS, body=BODIES)
def test_no_body_makes_the_hub_fail(
    shared_hub: HubHome, call: tuple[str, str, Role], body: bytes
) -> None:
    method, path, role = call
    reply = shared_hub.call(method, path, body, token=shared_hub.token(role))
    assert reply.status in {200, 400, 403, 409, 413, 422}


@FUZZ
@given(head=st.binary(max_size=200) | st.text(max_size=60).map(lambda text: text.encode()))
def test_no_bytes_instead_of_http_make_the_hub_fail(shared_hub: HubHome, head: bytes) -> None:
    answer = _exchange(shared_hub, b"POST /v1/memory/" + head + b"\r\n\r\n")
    assert not answer or _status(answer) in {400, 401, 404, 405, 421}


@FUZZ
@given(binding=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=300))
def test_no_binding_makes_the_hub_fail(shared_hub: HubHome, binding: str) -> None:
    reply = shared_hub.call(
        "GET", "/v1/memory/capability", token=shared_hub.token("user"), binding=binding
    )
    assert reply.status == (200 if binding == "global" else 403)


def _exchange(hub: HubHome, data: bytes) -> bytes:
    """Send bytes, close our side, and return all that comes back."""
    with connect(hub.private, seconds=SECONDS) as channel:
        channel.sendall(data)
        channel.shutdown(socket.SHUT_WR)
        answer = b""
        while part := channel.recv(65536):
            answer += part
        return answer


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_the_client_sees_a_refusal_that_comes_before_its_body_is_read(shared_hub: HubHome) -> None:
    with shared_hub.client("user") as user:
        for size in (600_000, 3_000_000):
            request = UpsertRequest(path="a.md", content="x" * size, expected_revision="absent")
            with pytest.raises(LimitExceeded) as caught:
                user.upsert(request)
            assert caught.value.fields["limit"] == "request_body"


def test_a_binding_with_a_line_end_is_never_sent(shared_hub: HubHome) -> None:
    connection = Connection(url=f"unix:{shared_hub.private}", token=shared_hub.token("user"))
    with (
        HubClient(connection, binding="global\r\nOrigin: http://x") as client,
        pytest.raises(Unavailable, match="line end"),
    ):
        client.capability()
