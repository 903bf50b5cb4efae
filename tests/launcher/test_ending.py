"""Nobody is ended in the middle of a refresh: neither by a signal nor by the end of stdin."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from amux.launcher.channel.jsonlines import JsonLinesChannel
from amux.launcher.process.ending import begin_end, end
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.providers.base import Shutdown
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.process.agent import AgentProcess

SPENDING = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
(folder / "sessions").mkdir()
(folder / "sessions" / f"{os.getpid()}.json").write_text("{}")
(folder / "agent.lock").mkdir()
print('{"spent": true}', flush=True)
signal.sigwait({signal.SIGCONT})
(folder / "token").write_text("new")
(folder / "agent.lock").rmdir()
sys.stdin.read()
"""
"""Spends its token, and has the new one only after somebody has looked at it and let it go on."""

ENDING_LATER = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
print('{"spent": true}', flush=True)
sys.stdin.read()
(pathlib.Path(sys.argv[1]) / "token").write_text("new")
"""


ON_DEMAND = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "agent.lock").mkdir()
print('{"spent": true}', flush=True)
if sys.stdin.readline():
    (folder / "token").write_text("new")
(folder / "agent.lock").rmdir()
sys.stdin.read()
"""


def started(folder: Path, program: str) -> AgentProcess:
    process = spawn(
        SpawnRequest(
            argv=(sys.executable, "-c", program, str(folder)),
            environment={"PATH": os.defpath},
            cwd=str(folder),
            marker=os.urandom(16).hex(),
        )
    )
    assert JsonLinesChannel(process).receive(deadline=SECONDS) == {"spent": True}
    return process


@pytest.mark.parametrize("link", [False, True])
def test_an_agent_that_holds_a_lock_is_ended_only_after_it_let_go(
    tmp_path: Path, *, link: bool
) -> None:
    agent = tmp_path / "agent"
    if link:  # a lock stands beside the folder itself, also where a link leads to it
        (tmp_path / "elsewhere").mkdir()
        agent = tmp_path / "elsewhere" / "link"
        agent.symlink_to(tmp_path / "agent")
    process = started(tmp_path, SPENDING)
    end(process, Shutdown(lock_files=(f"{agent}.lock",), pid_folders=(str(tmp_path / "sessions"),)))
    assert process.status is not None
    assert (tmp_path / "token").read_text() == "new"
    assert list((tmp_path / "sessions").iterdir()) == []


def test_a_lock_that_a_crash_left_keeps_nobody(tmp_path: Path) -> None:
    left = tmp_path / "left.lock"
    left.mkdir()
    os.utime(left, (1, 1))
    process = started(tmp_path, ENDING_LATER)
    end(process, Shutdown(lock_files=(str(left),)))
    assert process.status is not None
    assert process.status.signal == 9


def test_an_agent_without_locks_ends_in_its_own_time_once_its_stdin_has(tmp_path: Path) -> None:
    process = started(tmp_path, ENDING_LATER)
    end(process, Shutdown())
    assert process.status is not None
    assert process.status.code == 0
    assert (tmp_path / "token").read_text() == "new"


def test_a_run_that_is_given_up_is_stopped_once_its_agent_let_go(tmp_path: Path) -> None:
    process = started(tmp_path, ON_DEMAND)
    begin_end(process, Shutdown(lock_files=(str(tmp_path / "agent.lock"),)))
    process.write(memoryview(b"go on\n"))  # its stdin is still open
    assert process.wait(SECONDS) is not None
    assert (tmp_path / "token").read_text() == "new"
