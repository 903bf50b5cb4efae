"""`close` and `stop` in a signal handler end, whatever the handler interrupts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.launcher.interrupted import ROOT

if TYPE_CHECKING:
    from launcher.host import Host

INTERRUPTED = (
    "supervisor:running:1",
    "supervisor:_keep:2",
    "supervisor:follow:4",
    "events:next:2",
    "events:put:2",
    "events:_put:2",
    "lines:_next:3",
    "process:write:2",
    "process:_command:2",
    "process:stderr_tail:1",
    "hubkeeper:keep:4",
    "moment:do:4",
    "leases:keep:3",
    "lookout:keep:3",
    "moment:wait:5",
    "moment:use:3",
    "threading:start:4",
    "threading:wait:12",
)


@pytest.mark.parametrize("point", INTERRUPTED)
def test_a_handler_that_closes_ends_all_wherever_it_comes(host: Host, point: str) -> None:
    assert "signal at /" in _interrupted(host, "close", point)


@pytest.mark.parametrize("point", ["lines:_next:3", "moment:wait:5", "supervisor:_keep:2"])
def test_a_handler_that_stops_each_session_ends_it(host: Host, point: str) -> None:
    assert "signal at /" in _interrupted(host, "stop", point)


def _interrupted(host: Host, handler: str, point: str) -> str:
    folder = host.home.parent
    done = subprocess.run(
        (sys.executable, "-m", "tests.launcher.interrupted", str(folder), handler, point),
        cwd=ROOT,
        env={**host.environ, "AMUX_RUNS": str(host.runs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
