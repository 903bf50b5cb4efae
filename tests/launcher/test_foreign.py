"""A provider whose own code fails: one error that names it, and no run left half held."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest
from click.testing import CliRunner

from amux.launcher.cli import launch as launch_command
from amux.launcher.errors import ChannelError
from amux.launcher.launch import launch
from amux.launcher.provider_call import held
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore, State
from amux.providers.base import Framing, LaunchPlan, Mode, Preflight
from amux.providers.errors import NotConfirmed, ProviderFailed
from amux.providers.generic import GenericProvider
from amux.providers.registry import Registry
from fixtures.scripted_provider import ScriptedProvider, install_scripted_agent
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.providers.base import AgentRequest, Confirmed, Facts, Grant, JsonObject

T = TypeVar("T")


class FailingProvider(ScriptedProvider):
    """Fails where `broken` says so, by raising or, with `-none`, by returning None."""

    broken: ClassVar[str] = ""

    def _fail(self, method: str, otherwise: Callable[[], T]) -> T:
        if self.broken == method:
            raise RuntimeError("a mistake")
        if self.broken == f"{method}-none":
            return None  # type: ignore[return-value]  # the mistake
        return otherwise()

    def parse_version(self, output: str) -> str:
        return self._fail(
            "parse_version", lambda: super(FailingProvider, self).parse_version(output)
        )

    def files_to_read(self, request: AgentRequest) -> tuple[str, ...]:
        return self._fail(
            "files_to_read", lambda: super(FailingProvider, self).files_to_read(request)
        )

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        if self.broken.startswith("confirm_preflight") and confirmed is None:
            argv = (*request.command, *request.arguments)
            return Preflight(argv=argv, environment=(), framing=Framing.JSON_LINES)
        return self._fail(
            "plan", lambda: super(FailingProvider, self).plan(request, grant, facts, confirmed)
        )

    def confirm_preflight(self, channel: Any, request: AgentRequest, grant: Grant) -> Confirmed:  # noqa: ANN401
        return self._fail(
            "confirm_preflight",
            lambda: super(FailingProvider, self).confirm_preflight(channel, request, grant),
        )

    def handshake(
        self,
        channel: Any,  # noqa: ANN401
        request: AgentRequest,
        grant: Grant | None,
        plan: LaunchPlan,
    ) -> Confirmed:
        return self._fail(
            "handshake",
            lambda: super(FailingProvider, self).handshake(channel, request, grant, plan),
        )

    def on_message(self, message: JsonObject) -> tuple[Any, ...]:
        return self._fail("on_message", lambda: super(FailingProvider, self).on_message(message))

    def rewrite_request(
        self,
        method: str,
        params: JsonObject,
        instructions: str,
        *,
        subagent_instructions: str | None = None,
    ) -> JsonObject:
        del subagent_instructions
        return self._fail(
            "rewrite_request",
            lambda: super(FailingProvider, self).rewrite_request(method, params, instructions),
        )


class OnlyFailing(Registry):
    """Knows no other provider."""

    def load(self, name: str) -> FailingProvider:
        del name
        return FailingProvider()


@pytest.fixture(name="failing")
def _failing(host: Host) -> Host:
    return replace(host, providers=OnlyFailing())


@pytest.fixture(name="request_")
def _request(tmp_path: Path) -> LaunchRequest:
    return LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
    )


@pytest.mark.parametrize(
    "method", ["parse_version", "files_to_read", "plan", "confirm_preflight", "handshake"]
)
@pytest.mark.parametrize("how", [("", "RuntimeError: a mistake"), ("-none", "returned NoneType")])
def test_a_mistake_in_a_provider_is_an_error_that_names_it(
    failing: Host,
    request_: LaunchRequest,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    how: tuple[str, str],
) -> None:
    ending, told = how
    monkeypatch.setattr(FailingProvider, "broken", method + ending)
    with pytest.raises(
        ProviderFailed, match=rf"scripted \(module .*\) failed in {method}: .*{told}"
    ):
        launch(request_, failing)
    records = SessionStore(failing.home).list().records
    assert {record.state for record in records} <= {State.FAILED}
    assert not failing.runs.exists() or list(failing.runs.iterdir()) == []


def test_the_command_says_it_in_one_line_and_ends_with_125(
    failing: Host, request_: LaunchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingProvider, "broken", "plan")
    monkeypatch.setattr(launch_command, "this_host", lambda _: failing)
    told = CliRunner().invoke(
        launch_command.command, ["scripted", "--executable", str(request_.executable)]
    )
    assert told.exit_code == 125
    assert "failed in plan: RuntimeError: a mistake" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.TERMINAL])
def test_a_channel_on_the_callers_own_stdio_is_refused(
    failing: Host, request_: LaunchRequest, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    def plan(_: object, request: AgentRequest, *__: object) -> LaunchPlan:
        return LaunchPlan(argv=request.command, framing=Framing.JSON_LINES)

    monkeypatch.setattr(FailingProvider, "plan", plan)
    with pytest.raises(ProviderFailed, match=f"planned a json-lines channel in {mode} mode"):
        launch(replace(request_, mode=mode), failing)


@pytest.mark.parametrize("broken", ["on_message", "on_message-none"])
def test_a_mistake_in_observe_ends_the_channel_with_the_reason_and_the_run(
    failing: Host, request_: LaunchRequest, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with launch(request_, failing) as run:
        monkeypatch.setattr(FailingProvider, "broken", broken)
        run.channel.send({"hello": 1})
        with pytest.raises(ChannelError, match="failed in on_message"):
            run.channel.receive(deadline=SECONDS)
        assert run.wait(SECONDS) is not None
    assert "failed in on_message" in SessionStore(failing.home).load(run.report.session).failure


@pytest.mark.parametrize("broken", ["rewrite_request", "rewrite_request-none"])
def test_a_mistake_in_outgoing_sends_nothing_and_is_told(
    failing: Host, request_: LaunchRequest, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with launch(request_, failing) as run:
        monkeypatch.setattr(FailingProvider, "broken", broken)
        with pytest.raises(ProviderFailed, match="failed in rewrite_request"):
            run.channel.send({"hello": 1})
        monkeypatch.setattr(FailingProvider, "broken", "")
        run.channel.send({"hello": 2})
        assert run.channel.receive(deadline=SECONDS) == {"echo": {"hello": 2}}


def test_a_mistake_in_opened_ends_the_run(
    failing: Host, request_: LaunchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_response(*_: object) -> None:
        raise KeyError("thread")

    monkeypatch.setattr(FailingProvider, "on_response", on_response)
    with launch(request_, failing) as run:
        assert run.channel.controls is not None
        with pytest.raises(ProviderFailed, match="failed in on_response: KeyError"):
            run.channel.controls.after("thread/start", {})
        assert run.wait(SECONDS) is not None
    assert "failed in on_response" in SessionStore(failing.home).load(run.report.session).failure


def test_a_documented_error_of_a_provider_passes_as_it_is() -> None:
    class Honest(GenericProvider):
        def on_message(self, message: JsonObject) -> tuple[Any, ...]:
            raise NotConfirmed("it is on", answer=str(message))

    with pytest.raises(NotConfirmed):
        held(Honest().on_message, tuple)({})


def test_the_error_names_the_distribution_that_installed_the_provider() -> None:
    with pytest.raises(ProviderFailed, match=r"generic \(amux-launcher \d"):
        held(GenericProvider().parse_version, int)("1.2")
