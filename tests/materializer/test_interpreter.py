from __future__ import annotations

import contextlib
import os
import select
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.materializer import interpreter, onefile, trial
from amux.materializer.errors import InterpreterNotFound, RootUnsafe
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from amux.materializer.values import Identity
    from fixtures.accounts import Account

OPEN_PATH = "/usr/local/bin:/usr/bin:/bin"
CLI = onefile.build()


def find(root: Path, place: Path, identity: Identity | None, cli: bytes = CLI) -> str:
    return interpreter.find(
        root,
        cli,
        identity=identity,
        environment={"PATH": OPEN_PATH},
        cache=place / "cache" / "interpreters.json",
    )


@pytest.fixture(name="private_python")
def _private_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let amux run from a Python in a home that is closed to others."""
    folder = place / "home-of-the-service"
    folder.mkdir(mode=0o700)
    python = folder / "python3"
    shutil.copy2(Path(sys.executable).resolve(), python)
    monkeypatch.setattr(sys, "executable", str(python))
    return python


def test_a_plain_launch_uses_the_python_that_amux_runs_with(tmp_path: Path) -> None:
    assert find(tmp_path / "runs", tmp_path, None) == sys.executable
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_the_one_found_runs_the_real_command_as_the_target(
    root: Path, place: Path, target: Identity
) -> None:
    found = find(root, place, target)
    outcome = trial.run(
        (found, "-c", "import os; print(os.getuid())"), identity=target, environment={}
    )
    assert outcome.stdout.split() == [str(target.uid).encode()]
    assert list(root.iterdir()) == []


@pytest.mark.root
@pytest.mark.usefixtures("private_python")
def test_a_python_below_a_closed_home_is_passed_over(
    root: Path, place: Path, target: Identity, private_python: Path
) -> None:
    assert find(root, place, target) != str(private_python)


@pytest.mark.root
def test_none_that_works_is_an_error_that_names_each_and_why(
    root: Path,
    place: Path,
    target: Identity,
    private_python: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = place / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho this is no Python >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(interpreter, "STANDARD_FOLDERS", ())
    with pytest.raises(InterpreterNotFound) as caught:
        interpreter.find(
            root,
            CLI,
            identity=target,
            environment={"PATH": str(broken.parent)},
            cache=place / "cache" / "interpreters.json",
        )
    tried = dict(caught.value.tried)
    assert "this is no Python" in tried[str(broken)]
    assert "Permission denied" in tried[str(private_python)]
    assert target.user in str(caught.value)
    assert str(private_python) in str(caught.value)
    assert not (place / "cache" / "interpreters.json").exists()
    assert list(root.iterdir()) == []


@pytest.mark.root
def test_it_is_remembered_per_user_and_file_and_looked_for_again_when_either_changes(
    root: Path, place: Path, target: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    ask = trial.run

    def counted(argv: tuple[str, ...], **options: object) -> trial.Trial:
        tries.append(argv[0])
        return ask(argv, **options)  # type: ignore[arg-type]  # passed through unchanged

    python = place / "python3"
    shutil.copy2("/usr/bin/python3", python)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(trial, "run", counted)
    assert find(root, place, target) == str(python)
    assert find(root, place, target) == str(python)
    assert len(tries) == 1
    cache = place / "cache" / "interpreters.json"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert find(root, place, replace(target, groups=(*target.groups, 4242))) == str(python)
    assert len(tries) == 2
    os.utime(python, ns=(1, 1))
    assert find(root, place, target) == str(python)
    assert len(tries) == 3
    assert find(root, place, target, CLI + b"\n") == str(python)
    assert len(tries) == 4
    cache.write_text("broken")
    assert find(root, place, target) == str(python)
    assert len(tries) == 5


@pytest.mark.root
def test_a_root_that_cannot_be_used_is_said_before_any_interpreter_is_tried(
    place: Path, target: Identity
) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(RootUnsafe):
        find(closed / "runs", place, target)


@pytest.mark.parametrize("folder", ["plain", "with blanks", "x" * 200])
def test_the_first_line_starts_that_interpreter_isolated_whatever_its_path(
    tmp_path: Path, folder: str
) -> None:
    python = tmp_path / folder / "python3"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    file = tmp_path / "amux"
    file.write_bytes(interpreter.with_first_line(CLI, str(python)))
    file.chmod(0o555)
    hostile = {"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "/nonexistent", "PATH": OPEN_PATH}
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        (str(file), "memory", "--help"), env=hostile, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "search" in done.stdout


@pytest.mark.root
def test_a_command_that_never_answers_or_floods_its_output_is_ended(target: Identity) -> None:
    silent = trial.run(
        ("/bin/sleep", "1000"), identity=target, environment={"PATH": OPEN_PATH}, deadline=0.5
    )
    assert (silent.status, silent.reason) == (None, "no answer in time")
    flood = trial.run(
        ("/bin/sh", "-c", "yes & yes >&2"), identity=target, environment={"PATH": OPEN_PATH},
        deadline=1.0,
    )  # fmt: skip
    assert flood.status is None
    assert len(flood.stdout) <= trial.OUTPUT_LIMIT


@pytest.mark.root
def test_what_a_command_leaves_behind_is_ended_and_does_not_hold_up_the_answer(
    target: Identity, alice: Account
) -> None:
    mark = alice.home / "pid"
    outcome = trial.run(
        ("/bin/sh", "-c", f"sleep 100000 & echo $! > {mark}; echo said; exit 3"),
        identity=target,
        environment={"PATH": OPEN_PATH},
        deadline=3600,  # what it holds up, it holds up for longer than a test may run
    )
    assert (outcome.status, outcome.stdout) == (3, b"said\n")
    pid = int(mark.read_text())
    mark.unlink()
    with contextlib.suppress(ProcessLookupError):
        left = os.pidfd_open(pid)
        assert select.select([left], [], [], SECONDS)[0], "it lives on"
        os.close(left)
