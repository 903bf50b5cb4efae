"""What a conversation's own transcript shows: before a resume, after the first turn, at the end."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from amux.launcher.cli import sessions as sessions_command
from amux.launcher.errors import MemoryRequired
from amux.launcher.evidence import transcript
from amux.launcher.evidence.transcript import PART_BYTES
from amux.launcher.host import this_host
from amux.launcher.launch import launch
from amux.launcher.session.store import SessionStore, State
from amux.materializer import identity
from fixtures.accounts import Account, account
from fixtures.isolated import isolated_host
from fixtures.scripted_provider import scripted_registry
from tests.launcher.agents_at_work import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.run import Run
    from amux.launcher.session.notice import Notice

NATIVE = "native memory was read"


@pytest.fixture
def ask(ask: Callable[..., LaunchRequest]) -> Callable[..., LaunchRequest]:
    """Build requests for the scripted agent that keeps a transcript."""
    return functools.partial(ask, provider="keeping")


def kept(home: Path, run: Run, ending: str = "") -> Path:
    path = home / "kept" / "today" / f"{run.report.native_id}{ending}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def seen(host: Host, session: str) -> dict[str, str]:
    record = SessionStore(host.home).load(session)
    return {f"{one.control}, {one.source}": one.observed for one in record.seen}


def test_what_a_run_wrote_is_read_after_its_first_turn_and_told(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    heard: list[Notice] = []
    with launch(ask(), scripted, heard=heard.append) as run:
        assert run.report.seen == ()
        write(kept(tmp_path, run), "protocol")
        write(kept(tmp_path, run, "-sub-1"), "native")
        write(kept(tmp_path, run), "turn")
        eventually(lambda: bool(heard))
        (notice,) = heard
        assert {(one.control, one.observed, one.turn) for one in notice.seen} == {
            ("native memory", "absent", 1),
            ("protocol", "1 times from the start", 1),
            ("native memory in sub-agents", "present", 0),
            ("protocol in sub-agents", "0 times from the start", 0),
        }
        assert notice.warnings == ("native memory was read in sub-agents",)
        assert run.wait(DEADLINE) is not None  # native memory, also a sub-agent's, ends the run
    record = SessionStore(scripted.home).load(run.report.session)
    assert record.failure == "native memory was read in sub-agents"
    assert "native memory was read in sub-agents" in record.warnings
    assert record.transcript is not None
    assert record.transcript.size == len("protocol\nturn\n")


def test_what_is_written_after_the_first_turn_is_read_when_the_run_ends(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    heard: list[Notice] = []
    with launch(ask(), scripted, heard=heard.append) as run:
        write(kept(tmp_path, run), "protocol", "turn")
        eventually(lambda: bool(heard))
        write(kept(tmp_path, run), "protocol", "turn", "native", "half a line")
    assert seen(scripted, run.report.session) == {
        "native memory, kept by amux": "present",
        "protocol, kept by amux": "2 times from the start",
    }
    record = SessionStore(scripted.home).load(run.report.session)
    assert record.state is State.ENDED
    assert NATIVE in record.warnings
    assert heard[-1].warnings == (NATIVE,)


def test_a_resume_says_what_was_added_without_amux_and_refuses_where_memory_is_required(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    with launch(ask(), scripted) as run:
        write(kept(tmp_path, run), "protocol", "turn")
    session = run.report.session
    resume = ask(provider="", session=session)
    with launch(resume, scripted) as again:
        assert again.report.seen == ()
        write(kept(tmp_path, run), "turn")
    assert seen(scripted, session)["protocol, kept by amux"] == "0 times from later"
    write(kept(tmp_path, run), "native", "turn")
    with pytest.raises(MemoryRequired, match=f"{NATIVE}; this launch requires memory"):
        launch(replace(resume, require_memory=True), scripted)
    with launch(resume, scripted) as tainted:
        assert {(one.observed, one.source) for one in tainted.report.seen} == {
            ("present", "kept without amux"),
            ("0 times from later", "kept without amux"),
        }
        assert NATIVE in tainted.report.warnings
        # What was said before the start is no news: the run goes on.
        write(kept(tmp_path, run), "native", "turn")
    assert SessionStore(scripted.home).load(session).failure == ""


def test_a_transcript_that_was_written_anew_is_read_from_its_start(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    with launch(ask(), scripted) as run:
        write(kept(tmp_path, run), "protocol", "turn")
    kept(tmp_path, run).write_text("native\nturn\nturn\nturn\nturn\n")
    with launch(ask(provider="", session=run.report.session), scripted) as again:
        sights = {one.control: one.observed for one in again.report.seen}
    assert sights == {"native memory": "present", "protocol": "0 times from the start"}


def test_a_fork_begins_a_transcript_of_its_own(
    scripted: Host, ask: Callable[..., LaunchRequest], tmp_path: Path
) -> None:
    with launch(ask(), scripted) as run:
        write(kept(tmp_path, run), "protocol", "turn")
    write(kept(tmp_path, run), "native")
    fork = ask(provider="", session=run.report.session, fork=True)
    with launch(fork, scripted) as forked:
        assert NATIVE in forked.report.warnings
        record = SessionStore(scripted.home).load(forked.report.session)
        assert record.transcript is None


def test_of_a_part_that_is_too_long_the_last_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    line = b"x" * 1023 + b"\n"
    path.write_bytes(line * (PART_BYTES // len(line) + 3))
    found = transcript.read(str(path), None)
    assert found is not None
    assert found.truncated
    assert found.size == path.stat().st_size
    assert found.start + len(found.content) == found.size
    assert found.content.startswith(line)
    later = transcript.read(str(path), None, since=found.size, digest=found.digest)
    assert later is not None
    assert (later.content, later.truncated) == (b"", False)


def test_verify_reads_the_whole_transcript_and_fails_where_it_contradicts(
    scripted: Host,
    ask: Callable[..., LaunchRequest],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        sessions_command,
        "this_host",
        lambda names: replace(this_host(names), providers=scripted_registry()),
    )
    monkeypatch.setenv("AMUX_HOME", str(scripted.home))
    with launch(ask(), scripted) as run:
        verified = ["verify", run.report.session]
        early = CliRunner().invoke(sessions_command.command, verified)
        assert early.exit_code == 1
        assert "it had no turn yet" in early.stderr
        write(kept(tmp_path, run), "protocol", "turn")
    fine = CliRunner().invoke(sessions_command.command, [*verified, "--json"])
    assert fine.exit_code == 0
    assert [one["observed"] for one in json.loads(fine.stdout)["items"]] == [
        "absent",
        "1 times from the start",
    ]
    write(kept(tmp_path, run), "native")
    wrong = CliRunner().invoke(sessions_command.command, verified)
    assert wrong.exit_code == 1
    assert NATIVE in wrong.stderr
    assert NATIVE in SessionStore(scripted.home).load(run.report.session).warnings


@pytest.mark.root
def test_the_transcript_of_another_account_is_read_as_that_account() -> None:
    with isolated_host() as host, account() as ann:
        folder = ann.home / "kept"
        _own_folder(folder, ann)
        (folder / "a.txt").write_text("protocol\nturn\n")
        os.chown(folder / "a.txt", ann.uid, ann.gid)
        secret = host.home / "config.toml"
        (folder / "b.txt").symlink_to(secret)
        target = identity.resolve(ann.name)
        found = transcript.read(f"{folder}/*.txt", target)
        assert found is not None
        assert (found.path, found.content) == (f"{folder}/a.txt", b"protocol\nturn\n")
        assert transcript.read(f"{folder}/b.txt", target) is None
        assert transcript.newer((f"{folder}/*.txt",), target, since=0) == (f"{folder}/a.txt",)


def _own_folder(folder: Path, owner: Account) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, owner.uid, owner.gid)
