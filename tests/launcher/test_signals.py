"""A signal may come at any line: a handler that closes ends, a launch leaves nothing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.launcher.agents_at_work import eventually
from tests.launcher.interrupted import interrupt, leftovers

if TYPE_CHECKING:
    from amux.launcher.host import Host

INTERRUPTED = (
    "supervisor:running:1",
    "supervisor:_keep:2",
    "supervisor:follow:4",
    "events:next:2",
    "events:put:2",
    "events:_put:2",
    "lines:_next:3",
    "agent:write:2",
    "agent:_command:2",
    "agent:stderr_tail:1",
    "hub_keeper:keep:4",
    "signal_safe:do:4",
    "renewal:keep:3",
    "poller:keep:3",
    "signal_safe:wait:5",
    "signal_safe:use:3",
    "threading:start:4",
    "threading:wait:12",
)


@pytest.mark.parametrize("point", INTERRUPTED)
def test_a_handler_that_closes_ends_all_wherever_it_comes(host: Host, point: str) -> None:
    assert "signal at /" in _interrupted(host, "close", point)


@pytest.mark.parametrize("point", ["lines:_next:3", "signal_safe:wait:5", "supervisor:_keep:2"])
def test_a_handler_that_stops_each_session_ends_it(host: Host, point: str) -> None:
    assert "signal at /" in _interrupted(host, "stop", point)


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("INT", "__init__:get_command:3"),
        ("INT", "launch:launch:5"),
        ("INT", "attempt:claim:10"),
        ("INT", "runs:apply:9"),
        ("TERM", "launch:_bind:3"),
        ("TERM", "agent:started:1"),
        ("TERM", "mcp_evidence:begin:2"),
    ],
)
def test_a_launch_that_is_interrupted_leaves_nothing_and_no_trace(
    host: Host, name: str, point: str
) -> None:
    assert _launch(host, name, point) == 128 + signal.Signals[f"SIG{name}"]


@pytest.mark.parametrize("point", ["run:__init__:3", "foreground:serve:2"])
def test_what_comes_once_the_agent_stands_is_for_the_agent(host: Host, point: str) -> None:
    assert _launch(host, "TERM", point) in {0, 128 + signal.SIGTERM}


def _launch(host: Host, name: str, point: str) -> int:
    done = interrupt(host, name, point)
    assert "signal at /" in done.stdout
    assert "Traceback" not in done.stderr
    assert eventually(lambda: not leftovers(host.home.parent)), leftovers(host.home.parent)
    return done.returncode


def _interrupted(host: Host, handler: str, point: str) -> str:
    done = interrupt(host, handler, point)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
