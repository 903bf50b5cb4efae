"""Session records: exact, durable, readable, and none touched by another's damage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.errors import BadRequest, SessionDamaged, SessionNotFound, SessionRunning
from launcher.sessions import (
    RecordedEvidence,
    RunProcess,
    SessionRecord,
    SessionStore,
    State,
    TranscriptMark,
)
from providers.sighting import Sighting

HEAD = b'schema = 1\nid = "abcd"\nprovider = "p"\nstate = "ended"\n'
TEXT = (
    "You have memory.\n\n- Read `MEMORY.md` once.\n"
    '- "Quotes", \'\'\'triples\'\'\' and """more"""\\\n'
)


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path)


def full_record(store: SessionStore) -> SessionRecord:
    return SessionRecord(
        id=store.new_id(),
        provider="codex",
        agent_version="0.171.0",
        native_id="0199-aa",
        kind="task",
        parent="abcd1234",
        principal="alice@example.org",
        binding="principal:alice@example.org",
        protocol=TEXT,
        protocol_version="1",
        protocol_digest="00" * 32,
        instructions="first\r\nsecond\ttab\x1b[0m\n" + TEXT,
        instructions_digest="11" * 32,
        tools="mcp",
        tool_list="1",
        command=("/usr/bin/codex",),
        arguments=("--flag=ä", "", "two\nlines"),
        mode="stream",
        cwd="/home/alice",
        user="alice",
        private_home="/srv/private",
        state=State.RUNNING,
        run="/var/lib/amux/runs/x",
        marker="22" * 16,
        boot="boot",
        processes=(RunProcess(role="agent", pid=1, start=2),),
        started="2026-01-01T00:00:00.000Z",
        ended="2026-01-01T00:00:01.000Z",
        exit_code=0,
        exit_signal=9,
        failure="none",
        warnings=("one", "two"),
        evidence=(
            RecordedEvidence(
                control="memories", observed="false", source="config/read", asked="2026-11-30"
            ),
        ),
        seen=(
            Sighting(
                control="protocol", observed="0 times", source="rollout", turn=1, contradicts="gone"
            ),
        ),
        transcript=TranscriptMark(path="/a/b", size=3, digest="0f", beside=("/a/*",)),
    )


def test_every_field_comes_back_exactly(store: SessionStore) -> None:
    record = store.create(full_record(store))
    unset = [one.name for one in fields(record) if getattr(record, one.name) in ("", (), None)]
    assert unset == []
    assert store.load(record.id) == record


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200), arguments=st.lists(st.text(max_size=30), max_size=3))
def test_any_text_that_utf8_can_hold_is_frozen_byte_for_byte(
    text: str, arguments: list[str]
) -> None:
    record = SessionRecord(
        id="abcd", provider="p", protocol=text, instructions=text, arguments=tuple(arguments)
    )
    assert SessionRecord.parse(record.text()) == record


def test_the_file_is_for_people(store: SessionStore) -> None:
    record = store.create(replace(full_record(store), instructions=TEXT))
    path = store.folder / f"{record.id}.toml"
    text = path.read_text(encoding="utf-8")
    assert "- Read `MEMORY.md` once.\n" in text
    assert tomllib.loads(text)["schema"] == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_argument_that_toml_cannot_hold_is_refused(store: SessionStore) -> None:
    record = SessionRecord(id=store.new_id(), provider="p", arguments=("\udcff",))
    with pytest.raises(BadRequest, match=record.id):
        store.create(record)
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b"schema = 1\n",
        b'schema = 99\nid = "abcd"\nprovider = "p"\nstate = "ended"\n',
        b'schema = 1\nid = "other"\nprovider = "p"\nstate = "ended"\n',
        b'schema = 1\nid = "abcd"\nprovider = 7\nstate = "ended"\n',
        b'schema = 1\nid = "abcd"\nprovider = "p"\nstate = "flying"\n',
        b'schema = 1\nid = "abcd"\nprovider = "p"\nstate = "ended"\nunknown = 1\n',
        b'schema = 1\nid = "abcd"\nprovider = "p"\nstate = "ended"\narguments = [1]\n',
        b'schema = 1\nid = "abcd"\nprovider = "p"\nstate = "ended"\nprocesses = [{pid = "x"}]\n',
        HEAD + b'processes = [{role = "agent", pid = "x", start = 1}]\n',
        HEAD + b'evidence = [{control = "c", observed = 1, source = "s"}]\n',
    ],
)
def test_a_damaged_record_is_reported_and_touches_no_other(
    damage: bytes, store: SessionStore
) -> None:
    good = store.create(full_record(store))
    path = store.folder / "abcd.toml"
    path.write_bytes(damage)
    with pytest.raises(SessionDamaged, match="abcd"):
        store.load("abcd")
    listing = store.list()
    assert listing.records == (good,)
    assert [one.id for one in listing.damaged] == ["abcd"]
    assert path.read_bytes() == damage


def test_an_unknown_or_hostile_id_is_refused(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        store.load("abcd")
    for hostile in ("../../etc/passwd", "", "a/b", "A" * 5, "."):
        with pytest.raises(BadRequest):
            store.load(hostile)


def test_the_newest_session_of_a_native_conversation_is_found(store: SessionStore) -> None:
    first = full_record(store)
    store.create(replace(first, created="2026-01-01T00:00:00.000Z"))
    second = store.create(replace(first, id=store.new_id(), created="2026-01-02T00:00:00.000Z"))
    assert store.by_native_id("codex", "0199-aa") == second
    assert store.by_native_id("claude", "0199-aa") is None
    assert store.by_native_id("codex", "") is None


def test_two_live_runs_of_one_session_are_refused(store: SessionStore) -> None:
    record = store.create(full_record(store))
    lock = store.lock(record.id)
    with pytest.raises(SessionRunning, match=record.id):
        store.lock(record.id, wait=0)
    assert store.live(record.id)
    lock.release()
    assert not store.live(record.id)
    store.lock(record.id, wait=0).release()
    assert list(store.folder.glob("*.lock")) == []


def test_a_lock_is_held_as_long_as_one_of_its_holders_lives(store: SessionStore) -> None:
    """The shim holds it too, so a killed supervisor's session is not resumed too early."""
    record = store.create(full_record(store))
    lock = store.lock(record.id)
    script = "import sys; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[lock.descriptor],
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        lock.close()
        assert store.live(record.id)
        holder.communicate()
    assert not store.live(record.id)


def test_many_threads_contend_for_one_lock_and_one_has_it_at_a_time(store: SessionStore) -> None:
    record = store.create(full_record(store))
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with store.locked(record.id, wait=20):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_write_that_fails_leaves_the_old_record(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store.create(full_record(store))

    def full_disk(descriptor: int) -> None:
        raise OSError(28, os.strerror(28), descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space"):
            store.update(replace(record, state=State.FAILED))
    assert store.load(record.id) == record
    assert len(list(store.folder.iterdir())) == 1


def test_a_removed_session_is_gone_and_a_running_one_is_not_removed(store: SessionStore) -> None:
    record = store.create(full_record(store))
    lock = store.lock(record.id)
    with pytest.raises(SessionRunning):
        store.remove(record.id)
    lock.release()
    store.remove(record.id)
    assert list(store.folder.iterdir()) == []


def test_what_a_killed_writer_left_is_swept_later_and_never_listed(store: SessionStore) -> None:
    record = store.create(full_record(store))
    old, new = (store.folder / f".{record.id}.{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_text("half", encoding="utf-8")
    os.utime(old, (0, 0))
    store.sweep()
    assert not old.exists()
    assert new.exists()
    assert store.list().records == (record,)
    assert store.list().damaged == ()


def test_the_documentation_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text(encoding="utf-8")
    assert [one.name for one in fields(SessionRecord) if f"`{one.name}`" not in page] == []
