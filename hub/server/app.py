"""The HTTP calls of `/v1` as a Starlette application, one per listening socket."""

from __future__ import annotations

import dataclasses
import json
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from amux.hub import logs, wire
from amux.hub.errors import (
    HubError,
    InvalidRequest,
    LocalRefusal,
    StorageFailed,
    Unauthenticated,
)
from amux.hub.limits import Limits
from amux.hub.server import requests as parse
from amux.hub.server.gate import Gate
from amux.hub.server.protocol import CALL
from amux.hub.service import Door

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp

    from amux.hub.identity import Caller
    from amux.hub.leasing import Grant
    from amux.hub.server.body import BodyReader
    from amux.hub.server.protocol import Call
    from amux.hub.server.turns import Shares, Workers
    from amux.hub.service import HubService, SettingState, Store
    from amux.hub.values import Forgotten, Fragment, Scope, SearchAnswer, Written

    Answer = SearchAnswer | Fragment | Written | Forgotten

Asked = TypeVar("Asked")
VERSION: Final = version("amux-launcher")
BINDING_HEADER: Final = "amux-memory-binding"
_SHOWN_LIMITS: Final = (
    "entry_bytes",
    "entry_lines",
    "document_bytes",
    "path_bytes",
    "scope_documents",
    "scope_bytes",
    "query_bytes",
    "query_terms",
    "results_default",
    "results_most",
    "response_bytes",
)
_BEARER: Final = "bearer "


class HubApp:
    """Answer the calls that come through one door."""

    def __init__(  # noqa: PLR0913  # each is shared by all doors
        self,
        service: HubService,
        store: Store,
        *,
        door: Door,
        workers: Workers,
        bodies: BodyReader,
        shares: Shares,
    ) -> None:
        self._service = service
        self._store = store
        self._door = door
        self._workers = workers
        self._bodies = bodies
        self._shares = shares

    def asgi(self, *, hosts: frozenset[str], home: str | None = None) -> ASGIApp:
        """Return the application behind the gate that checks Host, home and Origin."""
        routes = [
            Route("/v1/health", self._health, methods=["GET"]),
            Route("/v1/memory/capability", self._capability, methods=["GET"]),
            Route("/v1/memory/search", self._search, methods=["POST"]),
            Route("/v1/memory/get", self._get, methods=["POST"]),
            Route("/v1/memory/upsert", self._upsert, methods=["POST"]),
            Route("/v1/memory/forget", self._forget, methods=["POST"]),
            Route("/v1/launches/{launch}", self._launch, methods=["PUT"]),
            Route("/v1/launches/{launch}", self._end_launch, methods=["DELETE"]),
            Route("/v1/system/config", self._config, methods=["GET"]),
            Route("/v1/system/config", self._configure, methods=["PUT"]),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False
        app.add_exception_handler(HubError, self._refuse)
        app.add_exception_handler(404, self._no_call)
        app.add_exception_handler(405, self._no_call)
        app.add_exception_handler(ClientDisconnect, _gone)
        app.add_exception_handler(Exception, _broken)
        return Gate(app, hosts=hosts, door=self._door, home=home)

    async def _health(self, request: Request) -> Response:
        answer: dict[str, object] = {"version": VERSION}
        if "authorization" in request.headers:
            self._caller(request)
            settings = self._service.settings
            answer |= {"policy": settings.memory_isolation, "enabled": settings.memory_enabled}
        return _json(answer)

    async def _capability(self, request: Request) -> Response:
        caller = self._caller(request)
        binding = self._service.binding(caller, request.headers.get(BINDING_HEADER))
        return _json(
            {
                "enabled": self._service.settings.memory_enabled,
                "binding": binding,
                "limits": _limits(),
            }
        )

    async def _search(self, request: Request) -> Response:
        return await self._verb(request, parse.search_request, self._store.search)

    async def _get(self, request: Request) -> Response:
        return await self._verb(request, parse.get_request, self._store.get)

    async def _upsert(self, request: Request) -> Response:
        return await self._verb(request, parse.upsert_request, self._store.upsert)

    async def _forget(self, request: Request) -> Response:
        return await self._verb(request, parse.forget_request, self._store.forget)

    async def _verb(
        self,
        request: Request,
        decode: Callable[[bytes], Asked],
        verb: Callable[[Scope, Asked], Answer],
    ) -> Response:
        caller = self._caller(request)
        scope = self._service.scope(caller, request.headers.get(BINDING_HEADER))
        call: Call = request.scope["state"][CALL]
        with self._shares.call(caller.credential_id) as hold:
            body = await self._bodies.read(request, hold)
            # Decoding a large body takes its time: not on the loop that everybody shares.
            data = await self._workers.run(
                lambda: wire.encode(verb(scope, decode(body))),
                scope=scope,
                credential=caller.credential_id,
                gone=lambda: call.gone,
            )
        return _raw(data)

    async def _launch(self, request: Request) -> Response:
        caller = self._caller(request)
        self._service.leasing.check_runtime(caller)
        launch = request.path_params["launch"]
        with self._shares.call(caller.credential_id) as hold:
            data = await self._bodies.read(request, hold)
            grant = await self._workers.run_now(lambda: self._opened(caller, launch, data))
        return _json(_grant(grant))

    def _opened(self, caller: Caller, launch: str, data: bytes) -> Grant:
        asked = parse.launch_request(data)
        leasing = self._service.leasing
        if asked.renew:
            return leasing.renew(caller, launch, proof=asked.proof)
        return leasing.open(caller, launch, principal=asked.principal, binding=asked.binding)

    async def _end_launch(self, request: Request) -> Response:
        caller = self._caller(request)
        launch = request.path_params["launch"]
        ended = await self._workers.run_now(lambda: self._service.leasing.end(caller, launch))
        return _json({"launch": launch, "already_absent": not ended})

    async def _config(self, request: Request) -> Response:
        caller = self._caller(request)
        return _json(_states(await self._workers.run_now(lambda: self._service.states(caller))))

    async def _configure(self, request: Request) -> Response:
        caller = self._caller(request)
        self._service.check_admin(caller)
        with self._shares.call(caller.credential_id) as hold:
            data = await self._bodies.read(request, hold)
        states = await self._workers.run_now(
            lambda: self._service.configure(caller, parse.parse_object(data))
        )
        return _json(_states(states))

    def _caller(self, request: Request) -> Caller:
        """Authenticate; the gate's log line then names the credential's id, never the token."""
        values = request.headers.getlist("authorization")
        if len(values) > 1:
            raise Unauthenticated("more than one Authorization header was sent")
        value = values[0] if values else ""
        bearer = value[: len(_BEARER)].lower() == _BEARER
        caller = self._service.authenticate(
            value[len(_BEARER) :] if bearer else None, door=self._door
        )
        request.state.caller = caller
        return caller

    async def _refuse(self, request: Request, error: Exception) -> Response:
        if isinstance(error, LocalRefusal):
            # Its sentence is for this machine's operator: it may name files.
            logs.event("own files", level=logging.ERROR, reason=error.message)
            error = StorageFailed("the Hub cannot read its own files; see its log")
        if not isinstance(error, HubError):
            raise error
        if isinstance(error.__cause__, LocalRefusal):
            logs.event("own files", level=logging.ERROR, reason=error.__cause__.message)
        if isinstance(error, Unauthenticated) and self._door is Door.PRIVATE:
            await self._workers.run_now(self._service.heal)
        return await self._error(request, error, error.status)

    async def _no_call(self, request: Request, error: Exception) -> Response:
        """Answer an unknown path or method, to known callers only."""
        try:
            self._caller(request)
        except HubError as refusal:
            return await self._refuse(request, refusal)
        status = error.status_code if isinstance(error, HTTPException) else 404
        return await self._error(request, InvalidRequest("the Hub has no such call"), status)

    async def _error(self, request: Request, error: HubError, status: int) -> Response:
        request.state.code = error.code
        response = _json(error.body(), status=status)
        if not await self._bodies.drain(request):
            response.headers["connection"] = "close"
        if status == Unauthenticated.status:
            response.headers["www-authenticate"] = "Bearer"
        return response


async def _gone(_request: Request, _error: Exception) -> Response:
    """Answer nobody: the client has closed the connection."""
    return Response(status_code=400)


async def _broken(request: Request, _error: Exception) -> Response:
    """Answer a fault of ours without saying more than that; the log has the frames."""
    error = HubError("the Hub failed at this call; its log says where")
    request.state.code = error.code
    return _json(error.body(), status=error.status)


def _limits() -> dict[str, int]:
    limits = Limits()
    return {name: getattr(limits, name) for name in _SHOWN_LIMITS}


def _grant(grant: Grant) -> dict[str, object]:
    fields: dict[str, object] = dataclasses.asdict(grant)
    for name in ("token", "reopened"):
        if fields[name] is None:
            del fields[name]
    return fields


def _states(states: Mapping[str, SettingState]) -> dict[str, object]:
    return {
        "settings": {key: dataclasses.asdict(state) for key, state in states.items()},
        "restart_needed": any(state.running != state.configured for state in states.values()),
    }


def _json(tree: Mapping[str, object], *, status: int = 200) -> Response:
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    return _raw(text.encode(errors="backslashreplace"), status=status)


def _raw(data: bytes, *, status: int = 200) -> Response:
    return Response(data, status, {"cache-control": "no-store"}, media_type="application/json")
