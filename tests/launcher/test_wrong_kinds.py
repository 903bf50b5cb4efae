"""A value of a wrong kind is refused by name, with amux's own error, before it goes anywhere."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from amux import (
    AmuxError,
    Connection,
    GetRequest,
    HubClient,
    LaunchRequest,
    Session,
    Supervisor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WRONG: tuple[object, ...] = (7, b"bytes", object(), [])
CALLS = {
    "Supervisor": ("launch", "record", "resume", "session", "stop"),
    "Session": ("answer_with", "receive_line", "send_line", "wait"),
}


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    environ = {"HOME": str(tmp_path), "AMUX_RUNS": str(tmp_path / "runs")}
    with Supervisor(tmp_path / "home", environ=environ) as opened:
        yield opened


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[..., LaunchRequest]:
    good = LaunchRequest(
        provider="generic",
        arguments=("cat",),
        environment={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
    )
    return lambda **changes: replace(good, **changes)


@pytest.mark.parametrize("name", [one.name for one in fields(LaunchRequest)])
def test_a_field_of_a_request(
    name: str, supervisor: Supervisor, request_of: Callable[..., LaunchRequest]
) -> None:
    good = getattr(request_of(), name)
    for value in WRONG:
        if type(value) is type(good) or (isinstance(value, list) and isinstance(good, tuple)):
            continue
        with pytest.raises(AmuxError, match=f"LaunchRequest.{name} must") as refused:
            supervisor.launch(request_of(**{name: value}))
        assert refused.value.code == "bad_request"


@pytest.mark.parametrize("owner", CALLS)
def test_an_argument_of_a_call(
    owner: str, supervisor: Supervisor, request_of: Callable[..., LaunchRequest]
) -> None:
    session = supervisor.launch(request_of())
    held: Supervisor | Session = supervisor if owner == "Supervisor" else session
    for name in CALLS[owner]:
        call = getattr(held, name)
        (first, *_) = inspect.signature(call).parameters
        for value in WRONG:
            if name in {"receive_line", "wait"} and value == 7:
                continue
            with pytest.raises(AmuxError, match=" must be ") as refused:
                call(**{first: value})
            assert refused.value.code == "bad_request"


@pytest.mark.parametrize(
    "call", ["forget", "get", "search", "upsert", "open_launch", "renew_launch", "end_launch"]
)
def test_an_argument_of_a_hubs_client(call: str) -> None:
    """Nothing is asked of a Hub: there is none at the address."""
    client = HubClient(Connection(url="unix:/nonexistent/hub.sock", token=""))
    method = getattr(client, call)
    (first, *_) = inspect.signature(method).parameters
    for value in (*WRONG, None):
        with pytest.raises(AmuxError, match=f"{first} must be ") as refused:
            method(**{first: value})
        assert refused.value.code == "invalid_request"


def test_a_field_of_a_request_to_a_hub_or_of_its_address() -> None:
    client = HubClient(Connection(url="unix:/nonexistent/hub.sock", token=""))
    with pytest.raises(AmuxError, match="cannot be sent as JSON"):
        client.get(GetRequest(path=b"notes.md"))  # type: ignore[arg-type]  # what is tried
    for value in (*WRONG, None):
        with pytest.raises(AmuxError, match=r"Connection\.url must be "):
            Connection(url=value, token="")  # type: ignore[arg-type]  # what is tried
        with pytest.raises(AmuxError, match="connection must be "):
            HubClient(value)  # type: ignore[arg-type]  # what is tried
        with pytest.raises(AmuxError, match="path must be "):
            HubClient.from_file(value)  # type: ignore[arg-type]  # what is tried


@pytest.mark.parametrize("name", ["home", "environ"])
def test_an_argument_of_a_supervisor(name: str) -> None:
    for value in WRONG:
        with pytest.raises(AmuxError, match=f"{name} must be "):
            Supervisor(**{name: value})  # type: ignore[arg-type]  # what is tried


def test_a_deadline_that_is_no_number_or_without_end(
    supervisor: Supervisor, request_of: Callable[..., LaunchRequest]
) -> None:
    session = supervisor.launch(request_of())
    with pytest.raises(AmuxError, match="not NaN"):
        session.receive_line(deadline=float("nan"))
    session.send_line("hello")
    assert session.receive_line(deadline=float("inf")) == "hello"
