"""A synchronous client of the Hub: typed requests in, typed answers or `amux.hub.errors` out.

Over a Unix socket it speaks with the standard library, over TLS with httpx, which is
imported only then. Every call makes its own exchange, so one client serves many threads.
After `Unavailable` nothing is retried: a write may have happened, and reading tells. A refused
credential is read once more from its file: a home's own Hub may have made a new one.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar
from urllib.parse import quote

from amux.hub.connection import Connection, load_connection
from amux.hub.errors import (
    WIRE_ERRORS,
    Conflict,
    HubError,
    InvalidRequest,
    JsonField,
    Unauthenticated,
    Unavailable,
)
from amux.hub.residence import HOME_HEADER, residence
from amux.hub.transport import TlsTransport, UnixTransport
from amux.kinds import wrong_kind, wrong_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from amux.hub.values import (
        ForgetRequest,
        Forgotten,
        Fragment,
        GetRequest,
        SearchAnswer,
        SearchRequest,
        UpsertRequest,
        Written,
    )

SECONDS: Final = 30.0
BINDING_HEADER: Final = "Amux-Memory-Binding"
_BY_CODE: Final = {error.code: error for error in WIRE_ERRORS}
Value = TypeVar("Value")
Request = TypeVar("Request", "SearchRequest", "GetRequest", "UpsertRequest", "ForgetRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The Hub's version, and for a known caller its policy and whether memory is on."""

    version: str
    policy: str | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Whether memory is on, the binding that holds for the caller, and the limits."""

    enabled: bool
    binding: str | None
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGrant:
    """An opened launch: its frozen binding and its `agent` credential until `expires_at`."""

    launch: str
    binding: str
    principal: str | None
    token: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A renewed launch; `expires_at` is Unix time in seconds.

    `reopened` says that it was over, or unknown to the Hub, and holds again.
    """

    launch: str
    binding: str
    principal: str | None
    expires_at: int
    reopened: bool = False


class Transport(Protocol):
    """One exchange with the Hub; raises Unavailable."""

    def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return status and body of the answer."""

    def close(self) -> None:
        """Let go of what the transport holds."""


class HubClient:
    """Call one Hub with one credential, and with a binding where the caller has one."""

    def __init__(
        self, connection: Connection, *, binding: str | None = None, seconds: float = SECONDS
    ) -> None:
        _expect("connection", connection, Connection)
        _expect("binding", binding, str, type(None))
        _refuse(wrong_seconds("seconds", seconds))
        path = connection.socket_path
        self._transport: Transport
        if path is not None:
            self._transport = UnixTransport(Path(path), seconds=seconds)
        else:
            self._transport = TlsTransport(
                connection.url, ca_pem=connection.ca_pem, seconds=seconds
            )
        self._file: Path | None = None
        self._headers = {"Authorization": f"Bearer {connection.token}"}
        if connection.home is not None:
            self._headers[HOME_HEADER] = residence(connection.home).text
        if binding is not None:
            self._headers[BINDING_HEADER] = binding

    @classmethod
    def from_file(
        cls, path: Path, *, binding: str | None = None, seconds: float = SECONDS
    ) -> HubClient:
        """Read a connection file and return its client. Raises HomeRefused."""
        _expect("path", path, Path, example="Path('/…')")
        client = cls(load_connection(path), binding=binding, seconds=seconds)
        client._file = path
        return client

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Let go of open connections."""
        self._transport.close()

    def health(self) -> Health:
        """Return version, policy and enabled; also tells whether the credential is good."""
        return _value(Health, self._call("GET", "/v1/health"))

    def capability(self) -> Capability:
        """Return what the caller may count on."""
        return _value(Capability, self._call("GET", "/v1/memory/capability"))

    def search(self, request: SearchRequest) -> SearchAnswer:
        """Return one page of matches."""
        from amux.hub.values import Match, SearchAnswer, SearchRequest  # noqa: PLC0415  # a launch needs none of the verbs

        tree = self._verb("search", request, SearchRequest)
        matches = tree.get("matches")
        if not isinstance(matches, list):
            raise _not_understood()
        found = tuple(_value(Match, match) for match in matches)
        return _value(SearchAnswer, {**tree, "matches": found})

    def get(self, request: GetRequest) -> Fragment:
        """Return a piece of one document."""
        from amux.hub.values import Fragment, GetRequest  # noqa: PLC0415  # a launch needs none of the verbs

        return _value(Fragment, self._verb("get", request, GetRequest))

    def upsert(self, request: UpsertRequest) -> Written:
        """Write one document."""
        from amux.hub.values import UpsertRequest, Written  # noqa: PLC0415  # a launch needs none of the verbs

        return _value(Written, self._verb("upsert", request, UpsertRequest))

    def forget(self, request: ForgetRequest) -> Forgotten:
        """Delete one document."""
        from amux.hub.values import ForgetRequest, Forgotten  # noqa: PLC0415  # a launch needs none of the verbs

        return _value(Forgotten, self._verb("forget", request, ForgetRequest))

    def open_launch(
        self, launch: str, *, principal: str | None = None, binding: str | None = None
    ) -> LaunchGrant:
        """Open a launch: fresh without `binding`, else for the stored one. Needs a runtime.

        A repeat with the same id gives a new credential and ends the older one.
        """
        body = {"principal": principal, "binding": binding}
        return _value(LaunchGrant, self._call("PUT", _launch_path(launch), body))

    def renew_launch(
        self,
        launch: str,
        *,
        token: str | None = None,
        principal: str | None = None,
        binding: str | None = None,
    ) -> Lease:
        """Extend a launch of this runtime by a full lease.

        With the run's own `token`, and what it is bound to, one that is over is opened again.
        """
        body: dict[str, object] = {"renew": True}
        if token is not None:
            body |= {"token": token, "principal": principal, "binding": binding}
        return _value(Lease, self._call("PUT", _launch_path(launch), body))

    def end_launch(self, launch: str) -> None:
        """End a launch and its credential; one that is over already is no error."""
        self._call("DELETE", _launch_path(launch))

    def system_config(self) -> Mapping[str, object]:
        """Return every setting, running and configured. Needs an admin."""
        return self._call("GET", "/v1/system/config")

    def set_memory_enabled(self, enabled: bool) -> Mapping[str, object]:  # noqa: FBT001  # the value
        """Set `memory.enabled` for the Hub's next start. Needs an admin."""
        return self._call("PUT", "/v1/system/config", {"memory.enabled": enabled})

    def _verb(self, verb: str, request: Request, kind: type[Request]) -> dict[str, object]:
        _expect("request", request, kind)
        return self._call("POST", f"/v1/memory/{verb}", dataclasses.asdict(request))

    def _call(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        try:
            return self._exchange(method, path, body)
        except Unauthenticated:
            if not self._renew_credential():
                raise
        return self._exchange(method, path, body)

    def _renew_credential(self) -> bool:
        """Take the credential that the file of this home holds now; False if it is the same."""
        if self._file is None:
            return False
        connection = load_connection(self._file)
        fresh = f"Bearer {connection.token}"
        if connection.home is None or fresh == self._headers["Authorization"]:
            return False
        self._headers = {**self._headers, "Authorization": fresh}
        return True

    def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> dict[str, object]:
        headers = dict(self._headers)
        data = None
        if body is not None:
            # ASCII on the wire: a lone surrogate then reaches the Hub, which refuses it.
            try:
                data = json.dumps(body).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidRequest(f"the request cannot be sent as JSON: {error}") from error
            headers["Content-Type"] = "application/json"
        status, answer = self._transport.exchange(method, path, headers=headers, body=data)
        try:
            tree = json.loads(answer)
        except ValueError as error:
            raise _not_understood() from error
        if not isinstance(tree, dict):
            raise _not_understood()
        if status != 200:  # noqa: PLR2004  # HTTP's own number
            raise _error(tree)
        return tree


def _expect(name: str, value: object, *kinds: type[object], example: str = "") -> None:
    """Raise InvalidRequest for a value that is of none of these kinds."""
    _refuse(wrong_kind(name, value, kinds, example))


def _refuse(sentence: str | None) -> None:
    if sentence is not None:
        raise InvalidRequest(sentence)


def _launch_path(launch: str) -> str:
    _expect("launch", launch, str)
    return "/v1/launches/" + quote(launch, safe="")


def _value(kind: type[Value], tree: object) -> Value:
    """Build an answer from the fields that it knows; a newer Hub may send more."""
    if not dataclasses.is_dataclass(kind) or not isinstance(tree, dict):
        raise _not_understood()
    known = {item.name for item in dataclasses.fields(kind)}
    try:
        return kind(**{name: value for name, value in tree.items() if name in known})
    except TypeError as error:
        raise _not_understood() from error


def _error(tree: Mapping[str, object]) -> HubError:
    fields = tree.get("error")
    if not isinstance(fields, dict):
        return _not_understood()
    code, message = fields.get("code"), fields.get("message")
    extra: dict[str, JsonField] = {
        str(name): value for name, value in fields.items() if name not in {"code", "message"}
    }
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        return HubError(f"the Hub answered: {message}", **extra)
    if kind is Conflict:
        return Conflict(str(message), revision=str(extra.get("revision")))
    return kind(str(message), **extra)


def _not_understood() -> HubError:
    return Unavailable("what answers at the Hub's address does not speak the Hub's protocol")
