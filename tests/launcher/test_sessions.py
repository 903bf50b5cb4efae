"""Session records: exact, durable, readable, and none touched by another's damage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amux.launcher.errors import BadRequest, SessionDamaged, SessionNotFound, SessionRunning
from amux.launcher.recovery import reconcile
from amux.launcher.session.store import (
    RECORD_BYTES,
    RecordedEvidence,
    RunProcess,
    SessionRecord,
    SessionStore,
    State,
    TranscriptMark,
)
from amux.providers.base import Sighting

HEAD = b'{"schema": 1, "id": "abcd", "provider": "p", %b}'
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
        conversations=("0199-aa", "0199-bb"),
        kind="task",
        parent="abcd1234",
        principal="alice@example.org",
        binding="principal:alice@example.org",
        protocol=TEXT,
        protocol_version="1",
        protocol_digest="00" * 32,
        instructions="first\r\nsecond\ttab\x1b[0m\n" + TEXT,
        instructions_digest="11" * 32,
        subagent_instructions=f"own\n\n{TEXT}",
        subagent_instructions_digest="55" * 32,
        tools="mcp",
        tool_list="1",
        command=("/usr/bin/codex",),
        arguments=("--flag=ä", "", "two\nlines"),
        mode="stream",
        cwd="/home/alice",
        user="alice",
        private_home="/srv/private",
        survivors=2,
        state=State.RUNNING,
        run="/var/lib/amux/runs/x",
        marker="22" * 16,
        boot="boot",
        home="44" * 16,
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


def test_the_file_is_one_json_object_of_the_owners_alone(store: SessionStore) -> None:
    record = store.create(replace(full_record(store), instructions=TEXT))
    path = store.folder / f"{record.id}.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    assert values["schema"] == 1
    assert values["instructions"] == TEXT
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_argument_that_is_not_utf8_comes_back_as_it_was(store: SessionStore) -> None:
    record = SessionRecord(id=store.new_id(), provider="p", arguments=("\udcff", "é"))
    assert store.load(store.create(record).id).arguments == ("\udcff", "é")


def test_a_record_that_would_not_read_back_is_refused(store: SessionStore) -> None:
    record = SessionRecord(id=store.new_id(), provider="p", binding="everybody's")
    with pytest.raises(BadRequest, match=f"{record.id} cannot be recorded: binding is"):
        store.create(record)
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"schema": 1',
        b"[" * 200_000,
        b'{"schema": 1}',
        b'{"schema": 99, "id": "abcd", "provider": "p", "state": "ended"}',
        b'{"schema": true, "id": "abcd", "provider": "p", "state": "ended"}',
        b'{"schema": 1, "id": "other", "provider": "p", "state": "ended"}',
        HEAD % b'"provider": 7',
        HEAD % b'"state": "flying"',
        HEAD % b'"state": ""',
        HEAD % b'"unknown": 1',
        HEAD % b'"arguments": [1]',
        HEAD % b'"arguments": "one"',
        HEAD % b'"mode": "sideways"',
        HEAD % b'"tools": "teleport"',
        HEAD % b'"binding": "principal:"',
        HEAD % b'"exit_code": "3"',
        HEAD % b'"exit_code": true',
        HEAD % b'"processes": [{"pid": 1}]',
        HEAD % b'"processes": {"pid": 1}',
        HEAD % b'"processes": [{"role": "agent", "pid": "x", "start": 1}]',
        HEAD % b'"evidence": [{"control": "c", "observed": 1, "source": "s"}]',
        HEAD % b'"seen": [{"control": "c", "observed": "o", "source": "s", "turn": 1.0}]',
        HEAD % b'"seen": [1]',
        HEAD % b'"transcript": {"path": "/a", "size": "3"}',
        HEAD % b'"transcript": []',
    ],
)
def test_a_damaged_record_is_reported_and_touches_no_other(
    damage: bytes, store: SessionStore
) -> None:
    good = store.create(full_record(store))
    path = store.folder / "abcd.json"
    path.write_bytes(damage)
    with pytest.raises(SessionDamaged, match="abcd"):
        store.load("abcd")
    listing = store.list()
    assert listing.records == (good,)
    assert [one.id for one in listing.damaged] == ["abcd"]
    assert path.read_bytes() == damage


@pytest.mark.parametrize("kind", ["folder", "fifo", "endless", "loop", "closed"])
@pytest.mark.parametrize("ending", [".json", ".lock"])
def test_what_is_not_a_plain_file_is_damage_and_stops_nothing(
    kind: str, ending: str, store: SessionStore
) -> None:
    good = store.create(full_record(store))
    cut = store.create(replace(good, id="0cut", marker="33" * 16, home=""))
    store.lock(cut.id).close()
    path = store.folder / f"abcd{ending}"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "closed":
            path.symlink_to("/nonexistent/abcd")
    if ending == ".lock":
        store.create(replace(good, id="abcd", state=State.ENDED))
        with pytest.raises(SessionDamaged, match=r"abcd\.lock"):
            store.lock("abcd", wait=0)
    assert [one.record.id for one in reconcile(store)] == ["0cut"]
    assert good in store.list().records


def test_a_record_longer_than_any_can_be_is_damage(store: SessionStore) -> None:
    (store.folder / "abcd.json").write_bytes(b" " * (RECORD_BYTES + 1))
    with pytest.raises(SessionDamaged, match="more than"):
        store.load("abcd")


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
