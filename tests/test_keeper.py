"""A session that leaves something on the machine fails, and says what and of which test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from amux.hub.cgroup import own_folder
from fixtures import accounts, ledger
from fixtures.waiting import SECONDS
from tests import leftovers

ROOT = Path(__file__).parents[1]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a folder for a session's tests, and let what it leaves have no time to end."""
    (tmp_path / "plugin.py").write_text(
        "from tests import keeper\n"
        "keeper.ENDING_SECONDS = 0.1\n"
        "pytest_cmdline_main = keeper.pytest_cmdline_main\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    return tmp_path


def session(folder: Path, body: str, *options: str) -> tuple[int, str]:
    """Run a session of one test and return its status and what it printed."""
    (folder / "test_one.py").write_text(f"def test_one():\n{textwrap.indent(body, '    ')}\n")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "plugin", "-c", os.devnull, *options, folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_session_that_leaves_nothing_has_its_own_status(short: Path, workers: str) -> None:
    assert session(short, "pass", "-n", workers)[0] == 0
    assert session(short, "assert False", "-n", workers)[0] == 1
    status, printed = session(short, "pass", "-n", workers, "-k", "nothing")
    assert (status, "behind" in printed) == (5, False)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_process_that_lives_on_is_named_with_its_test_and_ended(
    short: Path, workers: str
) -> None:
    body = (
        "import subprocess\n"
        "shell = 'setsid sleep 1000 > /dev/null 2>&1 & echo $!'\n"
        f"pid = subprocess.check_output(['sh', '-c', shell], text=True)\n"
        f"open({str(short / 'pid')!r}, 'w').write(pid)"
    )
    status, printed = session(short, body, "-n", workers)
    pid = int((short / "pid").read_text())
    assert status == 1
    assert f"process {pid} (sleep 1000), of test_one.py::test_one (call)" in printed
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_without_an_environment_is_found_too(short: Path) -> None:
    body = (
        "import subprocess\n"
        "shell = 'setsid env -i sleep 1000 > /dev/null 2>&1 &'\n"
        "subprocess.run(['sh', '-c', shell], check=True, cwd='/')"
    )
    status, printed = session(short, body)
    assert status == 1
    assert "(sleep 1000), of an unknown test" in printed


def test_temporary_files_and_what_was_noted_are_named_where_they_are_left(short: Path) -> None:
    folder = short / "noted"
    folder.mkdir()
    body = (
        "import tempfile\nfrom fixtures.ledger import note\n"
        f"print(tempfile.mkdtemp('left'))\nnote({str(folder)!r})\nnote({str(short / 'gone')!r})"
    )
    status, printed = session(short, body)
    assert status == 1
    assert "left 2 behind" in printed
    assert "left\n" in printed
    assert f"folder {folder}, made by test_one.py::test_one (call)" in printed


def test_an_interrupt_of_the_keeper_ends_the_session(short: Path) -> None:
    body = "import os, signal\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()"
    assert session(short, body)[0] == 128 + 15


def test_an_account_that_is_still_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("root\ttest_a\nno-such-account\ttest_b\n")
    assert list(leftovers.recorded(tmp_path / "ledger")) == ["account root, made by test_a"]


def test_files_that_are_new_are_named_where_they_are_ours_or_a_deleted_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "SHARED", (tmp_path,))
    (tmp_path / "claude-0").mkdir()
    (tmp_path / "amux-old").mkdir()
    before = leftovers.Traces.now()
    (tmp_path / "claude-0" / "-a-project").mkdir()
    for name in ("amux-new", "strangers", "amux-test-of-another", leftovers.FIXED):
        (tmp_path / name).mkdir()
    found = [one for one in leftovers.Traces.now().since(before) if str(tmp_path) in one]
    assert found == [f"file {tmp_path}/amux-new", f"file {tmp_path}/claude-0/-a-project"]


def test_the_socket_of_a_killed_claude_is_swept_and_a_living_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "SHARED", (tmp_path,))
    before = leftovers.Traces.now()
    (tmp_path / leftovers.SOCKETS).mkdir()
    for pid in (os.getpid(), 2**22):  # the second is beyond every pid
        (tmp_path / leftovers.SOCKETS / f"{pid}.sock").touch()
    leftovers.sweep(before)
    assert [one.stem for one in (tmp_path / leftovers.SOCKETS).iterdir()] == [str(os.getpid())]
    next((tmp_path / leftovers.SOCKETS).iterdir()).unlink()
    leftovers.sweep(before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_what_a_deleted_account_owns_is_named_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "SHARED", (tmp_path,))
    before = leftovers.Traces.now()
    (tmp_path / "anything").touch()
    os.chown(tmp_path / "anything", 54_321, 54_321)
    assert f"file {tmp_path}/anything" in leftovers.Traces.now().since(before)


@pytest.mark.root
def test_what_an_accounts_agents_leave_for_all_to_see_goes_with_the_account() -> None:
    with accounts.account() as alice:
        left = Path(f"/tmp/claude-{alice.uid}")  # noqa: S108  # as Claude makes it
        (left / "project").mkdir(parents=True)
        for path in (left / "project", left):
            os.chown(path, alice.uid, alice.gid)
    assert not left.exists()


@pytest.mark.root
def test_an_empty_control_group_that_is_new_is_named() -> None:
    parent = own_folder()
    before = leftovers.Traces.now()
    if not parent:
        return
    made = Path(parent, "amux-0123456789abcdef.test")
    made.mkdir()
    try:
        assert f"control group {made}" in leftovers.Traces.now().since(before)
    finally:
        made.rmdir()


def test_without_a_keeper_nothing_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ledger.PLACE)
    ledger.note("a name")
    assert ledger.noted(tmp_path / "none") == {}


def test_the_session_itself_has_a_keeper() -> None:
    assert Path(os.environ[ledger.PLACE]).parent.name.startswith("amux-tests-")
    assert leftovers.others()
