"""A Runtime that has closed some of its stdio, as old daemons do: its agents have all of theirs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures import accounts

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CLOSED = [numbers for count in (1, 2, 3) for numbers in itertools.combinations(range(3), count)]
RUNTIME = """
import json, os, sys
from amux.launcher.supervisor import LaunchRequest, Supervisor
from amux.providers.base import Mode

numbers, user, file = json.loads(sys.argv[1]), sys.argv[2] or None, sys.argv[3]
for number in numbers:
    os.close(number)
# What ls lists: stdio, all of it, and the folder itself. Nothing of the Runtime's came along.
script = 'ls /proc/self/fd | tr "\\\\n" " "; read a; echo "got $a"; read b; echo "got $b"; exit 3'
answers = {}
with Supervisor() as supervisor:
    base = dict(provider='generic', arguments=('sh', '-c', script), environment=dict(os.environ))
    session = supervisor.launch(LaunchRequest(**base, user=user))
    for word in ('one', 'two'):
        session.send_line(word)
    lines = [session.receive_line(deadline=120) for _ in range(2)]
    answers['pipes'] = [*lines, session.wait(120).code]
    session = supervisor.launch(LaunchRequest(**base, user=user, mode=Mode.TERMINAL, pty=True))
    screen = session.terminal
    for word in ('one', 'two'):
        screen.sendline(word)
        screen.expect_exact('got ' + word)
    answers['terminal'] = session.wait(120).code
with open(file, 'w') as report:
    json.dump(answers, report)
"""


@pytest.fixture(params=["own", pytest.param("isolated", marks=pytest.mark.root)])
def user(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the account that agents run as; empty for one's own."""
    if request.param == "own":
        yield ""
        return
    with accounts.account() as account:
        yield account.name


@pytest.mark.parametrize("numbers", CLOSED, ids=str)
def test_agents_of_a_runtime_with_closed_stdio_live_and_are_heard(
    user: str, numbers: tuple[int, ...]
) -> None:
    with accounts.reachable_folder() as place:
        report = place / "report"
        done = subprocess.run(
            (sys.executable, "-c", RUNTIME, json.dumps(numbers), user, str(report)),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(place),
                "AMUX_HOME": str(place / "amux"),
                "AMUX_RUNS": str(place / "runs"),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = json.loads(report.read_text(encoding="utf-8"))
    assert answers == {"pipes": ["0 1 2 3 got one", "got two", 3], "terminal": 3}
