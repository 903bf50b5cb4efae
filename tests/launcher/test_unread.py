"""What an agent wrote and nobody read is let go with its run: thread, descriptor and memory."""

from __future__ import annotations

import gc
import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Final

import pytest

from amux.launcher.channel import lines
from amux.launcher.errors import AgentFailed
from amux.launcher.supervisor import LaunchRequest, Supervisor
from tests.launcher.agents_at_work import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOOD: Final = "yes | head -c 3000000; exec sleep 1000"
GIVE_AWAY: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as friend:
    friend.connect(sys.argv[1])
    socket.send_fds(friend, [b"x"], [1])
print("the last words", flush=True)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Give a home of its own."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AMUX_HOME": str(tmp_path / "amux")}


@pytest.fixture
def supervisor(environ: dict[str, str]) -> Iterator[Supervisor]:
    """Open a supervisor."""
    with Supervisor(environ=environ) as opened:
        yield opened


def channels() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("amux-channel")]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count


def test_a_session_that_nobody_reads_keeps_nothing_after_its_end(
    supervisor: Supervisor, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "QUEUE_LIMIT", 1000)
    before = open_files()
    session = supervisor.launch(
        LaunchRequest(provider="generic", arguments=("sh", "-c", FLOOD), environment=environ)
    )
    assert session.receive_line(deadline=DEADLINE) == "y"
    kept = weakref.ref(session)
    assert len(channels()) == 1
    session.stop()
    assert eventually(lambda: not channels())
    assert eventually(lambda: open_files() == before)
    assert session.receive_line(deadline=DEADLINE) == "y"  # received before the end
    del session
    assert eventually(lambda: gc.collect() >= 0 and kept() is None)


def test_a_pipe_that_the_agent_handed_to_somebody_else_ends_with_the_run(
    supervisor: Supervisor, environ: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "friend"
    with socket.socket(socket.AF_UNIX) as friend:
        friend.bind(str(path))
        friend.listen()
        arguments = ("/usr/bin/python3", "-I", "-c", GIVE_AWAY, str(path))
        session = supervisor.launch(
            LaunchRequest(provider="generic", arguments=arguments, environment=environ)
        )
        with friend.accept()[0] as agent:
            _, given, _, _ = socket.recv_fds(agent, 1, 1)
        try:
            assert session.wait(DEADLINE) is not None
            assert session.receive_line(deadline=DEADLINE) == "the last words"
            with pytest.raises(AgentFailed):
                session.receive_line(deadline=DEADLINE)
            assert eventually(lambda: not channels())
        finally:
            os.close(given[0])
