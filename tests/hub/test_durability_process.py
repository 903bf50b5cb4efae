"""The real Hub, traced: the order of its steps, broken disks, and a kill at every one.

A killed process keeps the page cache, so that a kill alone cannot show what a loss of
power does; the order of fsync, rename, fsync and the answer shows that.
"""

from __future__ import annotations

import hashlib
import http.client
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from amux.hub.values import ABSENT
from fixtures.hatchery import Hatchery, hatchery
from fixtures.hubs import HubHome, Reply, new_home
from fixtures.tracing import Call, calls, traced
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLS: Final = (
    "openat,close,read,write,fsync,linkat,renameat,renameat2,unlinkat,mkdirat,getdents64,"
    "getrandom,sendto"
)
OLD: Final = "# Old\n" + "old line\n" * 200
NEW: Final = "# New\n" + "new line\n" * 300


def revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Traced:
    """One home whose Hub is started again and again."""

    def __init__(self, home: HubHome, nest: Hatchery, folder: Path) -> None:
        self.home = home
        self.nest = nest
        self.trace = folder / "trace"
        self.scope = home.home / "memory" / "global"
        self.token = home.token("user")
        self.pid = nest.start()

    def call(self, verb: str, **body: Any) -> Reply:  # noqa: ANN401  # JSON
        return self.home.call("POST", f"/v1/memory/{verb}", body, token=self.token)

    def upsert(self, path: str, content: str, expected: str = ABSENT) -> Reply:
        return self.call("upsert", path=path, content=content, expected_revision=expected)

    def text(self, path: str) -> str | None:
        shown = self.call("get", path=path)
        assert shown.code == "ok", shown
        return str(shown.fields["text"]) if shown.fields["exists"] else None

    def restart(self) -> None:
        assert self.nest.ended() == -9
        self.pid = self.nest.start()

    def files(self) -> set[str]:
        return {
            str(path.relative_to(self.scope)) for path in self.scope.rglob("*") if path.is_file()
        }


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Traced]:
    home = new_home(tmp_path / "h")
    home.set("memory.enabled", "true")
    with hatchery(home) as nest:
        yield Traced(home, nest, tmp_path)


def names(trace: list[Call], *wanted: str) -> list[str]:
    """Return the names of these calls in order; fsync says what it was called on."""
    found = []
    for call in trace:
        if call.name == "fsync":
            on = call.rest.partition("<")[2].partition(">")[0].rpartition("/")[2]
            found.append(f"fsync {'file' if on.startswith('.amux-') else on}")
        elif call.name == "openat" and "O_CREAT" in call.rest:
            found.append("create")
        elif call.name == "sendto" and "HTTP/1.1" in call.rest:
            found.append("answer")
        elif call.name in wanted:
            found.append(call.name)
    return found


CHANGING: Final = ("renameat", "renameat2", "unlinkat", "linkat", "mkdirat")


def test_an_answer_leaves_only_after_file_rename_and_folders_are_on_the_disk(hub: Traced) -> None:
    options = ("-s", "64", "-e", f"trace={CALLS}")
    with traced(hub.pid, hub.trace, *options):
        assert hub.upsert("a/b/x.md", OLD).code == "ok"
    created = names(calls(hub.trace), *CHANGING)
    assert created == [
        *("fsync home", "mkdirat", "fsync memory"),
        *("mkdirat", "fsync global", "mkdirat", "fsync a"),
        *("create", "fsync file", "renameat2", "fsync b", "answer"),
    ]
    with traced(hub.pid, hub.trace, *options):
        assert hub.upsert("a/b/x.md", NEW, revision(OLD)).code == "ok"
    replaced = names(calls(hub.trace), *CHANGING)
    assert replaced == [*("create", "fsync file", "renameat2", "fsync b", "unlinkat", "answer")]
    with traced(hub.pid, hub.trace, *options):
        assert hub.call("forget", path="a/b/x.md", expected_revision=revision(NEW)).code == "ok"
    deleted = names(calls(hub.trace), *CHANGING)
    # Afterwards the temporary name and the folders that are empty now.
    assert deleted == ["renameat", "fsync b", *["unlinkat"] * 3, "answer"]
    with traced(hub.pid, hub.trace, *options):
        assert hub.call("forget", path="a/b/x.md", expected_revision=ABSENT).code == "ok"
    assert names(calls(hub.trace), *CHANGING) == ["fsync global", "answer"]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_broken_disk_is_answered_and_the_old_document_stays_whole(
    hub: Traced, error: str
) -> None:
    assert hub.upsert("t/x.md", OLD).code == "ok"
    steps = {
        "openat:when=8": "create",
        "write:when=1": "write",
        "fsync:when=1": "fsync file",
        "renameat2:when=1": "exchange",
        "fsync:when=2": "fsync folder",
    }
    for step in steps:
        call, when = step.split(":")
        # Counted in each thread: the Hub's own loop makes none of these meanwhile.
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:{when}")
        with traced(hub.pid, hub.trace, *inject):
            refused = hub.upsert("t/x.md", NEW, revision(OLD))
        assert "INJECTED" in hub.trace.read_text(), step
        assert (refused.status, refused.code) == (507, "storage_failed"), step
        assert hub.text("t/x.md") == OLD, step
        assert hub.files() == {"t/x.md"}, step
    for step in ("renameat:when=1", "fsync:when=1"):
        call, when = step.split(":")
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:{when}")
        with traced(hub.pid, hub.trace, *inject):
            refused = hub.call("forget", path="t/x.md", expected_revision=revision(OLD))
        assert (refused.status, refused.code) == (507, "storage_failed"), step
        assert hub.text("t/x.md") == OLD, step
        assert hub.files() == {"t/x.md"}, step
    assert hub.upsert("t/x.md", NEW, revision(OLD)).code == "ok"
    assert hub.text("t/x.md") == NEW


VERBS: Final = {"replace": (OLD, NEW), "create": (None, NEW), "delete": (OLD, None)}


@dataclass(frozen=True, slots=True)
class Change:
    """One verb on one document: what stands there before and after."""

    path: str
    before: str | None
    after: str | None

    def make(self, hub: Traced) -> Reply:
        expected = ABSENT if self.before is None else revision(self.before)
        if self.after is None:
            return hub.call("forget", path=self.path, expected_revision=expected)
        return hub.upsert(self.path, self.after, expected)

    def undo(self, hub: Traced) -> None:
        """Bring back the state before; afterwards this Hub knows all folders that exist."""
        assert hub.upsert("f/0.md", "x").fields["unchanged"] is True
        now = hub.text(self.path)
        if now is None and self.before is None:
            # Takes empty folders along that a kill between two steps may have left.
            assert Change(self.path, None, "x").make(hub).code == "ok"
            now = "x"
        assert Change(self.path, now, self.before).make(hub).code == "ok"


def boundaries(hub: Traced, change: Change) -> list[tuple[str, int]]:
    """Return each system call of the change, with its number among those of its name.

    They begin with the one before the first that changes something: up to there, every
    place to be killed at is the same.
    """
    with traced(hub.pid, hub.trace, "-e", f"trace={CALLS}"):
        assert change.make(hub).code == "ok"
    trace = calls(hub.trace)
    worker = next(call.thread for call in trace if call.name in CHANGING)
    counted = Counter[str]()
    found: list[tuple[str, int]] = []
    first = None
    for call in trace:
        if call.thread == worker:
            counted[call.name] += 1
            if first is None and (call.name in CHANGING or "O_CREAT" in call.rest):
                first = len(found)
            found.append((call.name, counted[call.name]))
    assert first
    return found[first - 1 :]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_any_system_call_leaves_a_whole_document_and_a_right_quota(
    hub: Traced, verb: str
) -> None:
    change = Change("new/folder/x.md" if verb == "create" else "t/x.md", *VERBS[verb])
    (hub.scope / "f").mkdir(parents=True)
    for number in range(1022):
        (hub.scope / "f" / f"{number}.md").write_text("x")
    change.undo(hub)
    places = boundaries(hub, change)
    assert len(places) > 8
    seen = []
    for name, number in places:
        change.undo(hub)
        inject = f"inject={name}:signal=SIGKILL:when={number}"
        with traced(hub.pid, hub.trace, "-e", f"trace={name}", "-e", inject) as tracer:
            with pytest.raises((http.client.HTTPException, OSError)):
                change.make(hub)
            tracer.wait(SECONDS)
        hub.restart()
        text = hub.text(change.path)
        assert text in {change.before, change.after}, (name, number)
        seen.append(text)
        assert not [left for left in hub.files() if ".amux-" in left], (name, number)
        quota_is_right(hub, documents=1022 + (text is not None))
    # Once the change shows, it never goes away again at a later place.
    assert seen == sorted(seen, key=lambda text: text == change.after)
    assert set(seen) == {change.before, change.after}


def quota_is_right(hub: Traced, *, documents: int) -> None:
    """Show that 1,024 documents fit, and not one more."""
    made = []
    for number in range(documents, 1024):
        assert hub.upsert(f"q{number}.md", "q").code == "ok"
        made.append(f"q{number}.md")
    assert hub.upsert("over.md", "q").code == "limit_exceeded"
    for path in made:
        (hub.scope / path).unlink()


@pytest.mark.parametrize("sent", [1, 2])
def test_what_is_about_to_be_acknowledged_is_there_after_a_kill(hub: Traced, sent: int) -> None:
    # The first message is the worker's to the loop, the second the body of the answer.
    inject = f"inject=sendto:signal=SIGKILL:when={sent}"
    with traced(hub.pid, hub.trace, "-e", "trace=sendto", "-e", inject) as tracer:
        with pytest.raises((http.client.HTTPException, OSError)):
            hub.upsert("x.md", NEW)
        tracer.wait(SECONDS)
    hub.restart()
    assert hub.text("x.md") == NEW
    assert hub.upsert("x.md", NEW).fields["unchanged"] is True
