"""Many processes at once on one real Hub, and many threads on one store."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from amux.hub.errors import Conflict, LimitExceeded
from amux.hub.filesystem import FileSystem
from amux.hub.limits import Limits
from amux.hub.values import ABSENT, Scope
from fixtures.memory import Memory, open_memory
from fixtures.waiting import SECONDS
from fixtures.writers import FLIP

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from fixtures.hubs import HubHome


def run(hub: HubHome, folder: Path, task: str, count: int) -> list[str]:
    token = folder / "token"
    token.write_text(hub.token("user"))
    done = subprocess.run(
        [sys.executable, "-m", "fixtures.writers", task, str(count), str(hub.private), str(token)],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def put(hub: HubHome, path: str, content: str) -> None:
    body = {"path": path, "content": content, "expected_revision": ABSENT}
    assert hub.call("POST", "/v1/memory/upsert", body, token=hub.token("user")).code == "ok"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [8, 64])
def test_no_update_is_lost_between_processes_that_read_compare_and_swap(
    hub: HubHome, tmp_path: Path, count: int
) -> None:
    put(hub, "counter.md", "0\n")
    outcomes = run(hub, tmp_path, "increment", count)
    assert len(outcomes) == count
    assert all(outcome.isdigit() for outcome in outcomes), outcomes
    shown = hub.call("POST", "/v1/memory/get", {"path": "counter.md"}, token=hub.token("user"))
    assert shown.fields["text"] == f"{count}\n"


def test_a_quota_holds_when_processes_create_at_the_limit(hub: HubHome, tmp_path: Path) -> None:
    put(hub, "a.md", "a\n")
    scope = hub.home / "memory" / "global"
    for number in range(1018):
        (scope / f"{number}.md").write_text("x")
    outcomes = run(hub, tmp_path, "create", 24)
    assert sorted(outcomes) == ["limit_exceeded"] * 19 + ["ok"] * 5
    assert len(list((scope / "new").iterdir())) == 5


def test_readers_in_other_processes_never_see_half_a_document(hub: HubHome, tmp_path: Path) -> None:
    put(hub, "flip.md", FLIP[0])
    assert run(hub, tmp_path, "read", 5) == ["ok"] * 5


def test_bytes_hold_when_threads_grow_documents_at_the_limit(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(scope_bytes=1000))

    def create(number: int) -> bool:
        try:
            memory.put(f"{number % 4}/{number}.md", "x" * 90)
        except LimitExceeded:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(create, range(40)))
    assert sum(made) == 11
    assert sum(len(data) for data in memory.tree().values()) == 990


def test_threads_that_swap_one_document_lose_nothing_and_scopes_do_not_wait(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path)
    scopes = [Memory(memory.store, memory.root, Scope(name)) for name in (None, "ann", "bob")]
    for scope in scopes:
        scope.put("n.md", "0")

    def add(scope: Memory) -> None:
        while True:
            shown = scope.show("n.md")
            try:
                written = scope.put("n.md", str(int(shown.text) + 1), shown.revision)
            except Conflict as conflict:
                assert conflict.revision != shown.revision  # noqa: PT017  # the loop goes on
            else:
                if not written.unchanged:
                    return

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(add, scopes * 10))
    assert [scope.show("n.md").text for scope in scopes] == ["10"] * 3


def test_a_write_that_waits_for_the_disk_holds_up_neither_reads_nor_another_scope(
    tmp_path: Path,
) -> None:
    held, release = threading.Event(), threading.Event()

    class Slow(FileSystem):
        def write(self, file: int, data: bytes) -> int:
            if data == b"slow":
                held.set()
                assert release.wait(SECONDS)
            return super().write(file, data)

    memory = open_memory(tmp_path, files=Slow())
    other = Memory(memory.store, memory.root, Scope("ann"))
    first = memory.put("x.md", "first")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(memory.put, "x.md", "slow", first.revision)
        assert held.wait(SECONDS)
        assert memory.show("x.md").text == "first"
        assert memory.found("first") == ["x.md"]
        assert memory.find("first").skipped_files == 0
        other.put("x.md", "other")
        release.set()
        slow.result(SECONDS)
    assert memory.show("x.md").text == "slow"


def test_two_searches_at_most_scan_at_once_so_that_none_runs_out_of_its_time(
    tmp_path: Path,
) -> None:
    three = threading.Barrier(3, timeout=0.5)
    met: list[int | None] = []

    class Meeting(FileSystem):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            try:
                met.append(three.wait())
            except threading.BrokenBarrierError:
                met.append(None)
            return super().scan(folder)

    memory = open_memory(tmp_path, files=Meeting())
    memory.offline("x.md", "needle")
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(memory.find, ["needle"] * 3))
    assert met == [None] * 3
    assert [answer.scanned_files for answer in answers] == [1, 1, 1]
