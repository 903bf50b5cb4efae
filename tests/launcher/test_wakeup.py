"""A signal that comes to another thread, or right before a system call, is handled all the same."""

from __future__ import annotations

import secrets
import signal
import threading

import pytest

from amux.launcher.foreground import Foreground
from amux.launcher.process.spawn import SpawnRequest, Stdio, spawn
from fixtures.waiting import SECONDS


@pytest.mark.parametrize("stdio", [Stdio.INHERIT, Stdio.PIPES, Stdio.PTY])
def test_a_signal_that_another_thread_took_ends_the_agent_too(stdio: Stdio) -> None:
    begun = threading.Event()
    ended = threading.Event()
    too_late: list[str] = []

    def take_it() -> None:
        begun.wait(SECONDS)
        # The kernel chose this thread; the main thread's system call is not interrupted by it.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        if not ended.wait(SECONDS):
            too_late.append("the agent was still running")
            process.begin_stop()

    with Foreground() as place:
        process = spawn(
            SpawnRequest(
                argv=("/bin/sh", "-c", "echo ready; exec sleep 1000"),
                environment={"PATH": "/usr/bin:/bin"},
                cwd="/",
                marker=secrets.token_hex(16),
                stdio=stdio,
            )
        )
        thread = threading.Thread(target=take_it)
        thread.start()
        # The timer gives the main thread time to be in its system call; sooner is right as well.
        threading.Timer(0.5, begun.set).start()
        status = place.serve(process)
        ended.set()
    thread.join()
    process.close()
    assert not too_late
    assert status.signal in {signal.SIGTERM, signal.SIGHUP}  # on a PTY its line is hung up first
