"""Compare and swap, retries, limits at the number and one over, and offline edits."""

from __future__ import annotations

import hashlib
import json
import stat
from typing import TYPE_CHECKING

import pytest

from amux.hub.errors import Conflict, HubError, InvalidRequest, LimitExceeded, RejectedContent
from amux.hub.guard import Guarding
from amux.hub.limits import Limits
from amux.hub.values import ABSENT
from amux.hub.wire import encode
from fixtures.keyshapes import grow
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return open_memory(tmp_path)


def revision(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_document_lives_as_a_private_markdown_file(memory: Memory) -> None:
    written = memory.put("projects/amux/decisions.md", "# Decisions\n\n\u8bb0\u5fc6\n")
    data = "# Decisions\n\n\u8bb0\u5fc6\n".encode()
    path = memory.root / "global/projects/amux/decisions.md"
    assert memory.tree() == {"global/projects/amux/decisions.md": data}
    assert written.revision == revision(data)
    assert not written.unchanged
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in path.parents[:3]} == {0o700}
    shown = memory.show("projects/amux/decisions.md")
    assert (shown.exists, shown.text, shown.truncated) == (True, data.decode(), False)
    assert shown.revision == written.revision


def test_a_write_needs_the_revision_that_stands_there(memory: Memory) -> None:
    with pytest.raises(Conflict) as missing:
        memory.put("x.md", "text\n", revision(b"other"))
    assert missing.value.revision == ABSENT
    first = memory.put("x.md", "one\n")
    for stale in (ABSENT, revision(b"other")):
        with pytest.raises(Conflict) as conflict:
            memory.put("x.md", "two\n", stale)
        assert conflict.value.revision == first.revision
    memory.put("x.md", "two\n", first.revision)
    assert memory.show("x.md").text == "two\n"


def test_a_delete_needs_the_revision_that_stands_there(memory: Memory) -> None:
    written = memory.put("a/x.md", "one\n")
    for stale in (ABSENT, revision(b"other")):
        with pytest.raises(Conflict) as conflict:
            memory.drop("a/x.md", stale)
        assert conflict.value.revision == written.revision
    gone = memory.drop("a/x.md", written.revision)
    assert (gone.revision, gone.already_absent) == (ABSENT, False)
    assert memory.tree() == {}
    assert not memory.show("a/x.md").exists
    for expected in (ABSENT, written.revision):
        assert memory.drop("a/x.md", expected).already_absent


def test_the_same_content_again_settles_a_retry_whatever_revision_it_names(
    memory: Memory,
) -> None:
    first = memory.put("x.md", "one\n")
    second = memory.put("x.md", "two\n", first.revision)
    for expected in (first.revision, second.revision, ABSENT, revision(b"other")):
        again = memory.put("x.md", "two\n", expected)
        assert again.unchanged
        assert again.revision == second.revision


@pytest.mark.parametrize(
    "wrong", ["", "latest", "A" * 64, "0" * 63, "0" * 65, "absent\n", "\ud800"]
)
def test_a_revision_has_one_form(memory: Memory, wrong: str) -> None:
    with pytest.raises(InvalidRequest):
        memory.put("x.md", "text\n", wrong)
    with pytest.raises(InvalidRequest):
        memory.drop("x.md", wrong)


def test_content_that_is_no_unicode_text_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidRequest):
        memory.put("x.md", "half \ud83d of a pair")
    assert memory.tree() == {}


def test_a_byte_order_mark_is_refused_in_either_mode_of_the_guard(tmp_path: Path) -> None:
    for guard in (Guarding(), Guarding(invisible="warn")):
        memory = open_memory(tmp_path / guard.invisible, guard=guard)
        with pytest.raises(RejectedContent) as refused:
            memory.put("x.md", "\ufefftext\n")
        assert refused.value.fields == {"rule": "byte-order-mark", "line": 1}
        assert memory.tree() == {}


@pytest.mark.parametrize(
    ("path", "content", "limit"),
    [
        ("MEMORY.md", "\u00e9" * 1024, None),
        ("MEMORY.md", "\u00e9" * 1024 + "x", ("entry_bytes", 2048, 2049)),
        ("MEMORY.md", "x\n" * 64, None),
        ("MEMORY.md", "x\n" * 63 + "x", None),
        ("MEMORY.md", "x\n" * 64 + "x", ("entry_lines", 64, 65)),
        ("MEMORY.md", "\n" * 65, ("entry_lines", 64, 65)),
        ("topics/MEMORY.md", "x\n" * 2000, None),
        ("x.md", "\u8bb0" * 21845 + "x", None),
        ("x.md", "\u8bb0" * 21845 + "xy", ("document_bytes", 65536, 65537)),
        ("x.md", "", None),
    ],
)
def test_a_document_is_taken_at_its_limit_and_refused_one_over(
    memory: Memory, path: str, content: str, limit: tuple[str, int, int] | None
) -> None:
    if limit is None:
        memory.put(path, content)
        assert memory.tree() == {f"global/{path}": content.encode()}
        return
    with pytest.raises(LimitExceeded) as exceeded:
        memory.put(path, content)
    assert exceeded.value.fields == dict(zip(("limit", "maximum", "size"), limit, strict=True))
    assert str(limit[2]) in exceeded.value.message
    assert memory.tree() == {}


def test_a_scope_takes_1024_documents_and_refuses_one_more(memory: Memory) -> None:
    for number in range(1023):
        memory.offline(f"t{number % 8}/n{number}.md", "x")
    memory.offline("t0/not-a-document.txt", "x" * 10_000)
    last = memory.put("last.md", "x")
    assert memory.put("last.md", "x").unchanged
    with pytest.raises(LimitExceeded) as exceeded:
        memory.put("more.md", "x")
    fields = {"limit": "scope_documents", "maximum": 1024, "size": 1025}
    assert exceeded.value.fields == fields
    assert not memory.show("more.md").exists
    grown = memory.put("last.md", "xx", last.revision)
    memory.drop("last.md", grown.revision)
    memory.put("more.md", "x")


def test_a_scope_takes_16_mib_and_refuses_one_byte_more(memory: Memory) -> None:
    for number in range(256):
        memory.offline(f"n{number}.md", "x" * 65536)
    (memory.folder / "n0.md").write_bytes(b"x" * (65536 - 10))
    written = memory.put("ten.md", "x" * 10)
    with pytest.raises(LimitExceeded) as exceeded:
        memory.put("ten.md", "x" * 11, written.revision)
    full = 16 * 1024 * 1024
    assert exceeded.value.fields == {"limit": "scope_bytes", "maximum": full, "size": full + 1}
    assert memory.show("ten.md").text == "x" * 10
    memory.put("ten.md", "y" * 9, written.revision)


def test_a_scope_that_offline_edits_overfilled_can_still_shrink(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(scope_documents=2, scope_bytes=100))
    for name in ("a.md", "b.md", "c.md"):
        memory.offline(name, "x" * 90)
    a = memory.show("a.md")
    with pytest.raises(LimitExceeded):
        memory.put("a.md", "x" * 91, a.revision)
    a_short = memory.put("a.md", "x" * 90 + "", a.revision)
    assert a_short.unchanged
    same = memory.put("a.md", "y" * 90, a.revision)
    memory.put("a.md", "short", same.revision)
    memory.drop("b.md", memory.show("b.md").revision)
    with pytest.raises(LimitExceeded, match="documents"):
        memory.put("d.md", "x")


def test_a_quota_sees_a_file_that_an_editor_grew_in_place(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(scope_bytes=100))
    memory.put("a.md", "x" * 40)
    with (memory.folder / "a.md").open("r+b") as file:
        file.write(b"y" * 95)
    with pytest.raises(LimitExceeded) as exceeded:
        memory.put("b.md", "x" * 6)
    assert exceeded.value.fields["size"] == 101
    memory.put("b.md", "x" * 5)


def test_an_overfull_folder_of_other_things_stops_growth_but_no_other_verb(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path, limits=Limits(walk_entries=50))
    written = memory.put("a.md", "long text\n")
    for number in range(60):
        memory.offline(f"junk/f{number}", "")
    with pytest.raises(LimitExceeded, match="entries"):
        memory.put("b.md", "x")
    shorter = memory.put("a.md", "text\n", written.revision)
    assert memory.show("a.md").text == "text\n"
    memory.drop("a.md", shorter.revision)


def test_documents_cannot_hide_from_the_quota_in_an_overfull_folder(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(folder_entries=20, scope_documents=3))
    memory.put("junk/a.md", "x")
    for number in range(20):
        memory.offline(f"junk/f{number}", "")
    for path in ("junk/b.md", "c.md"):
        with pytest.raises(LimitExceeded) as exceeded:
            memory.put(path, "x")
        assert exceeded.value.fields["limit"] == "folder_entries"


def test_quotas_of_two_scopes_are_apart(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(scope_documents=1))
    memory.put("a.md", "x")
    other = Memory(memory.store, memory.root, type(memory.scope)("ann"))
    other.put("a.md", "x")
    for scope in (memory, other):
        with pytest.raises(LimitExceeded):
            scope.put("b.md", "x")


def test_checks_come_in_the_order_path_limits_guard_revision(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(document_bytes=100, scope_documents=1))
    memory.put("a.md", "x")
    secret = grow("AKIA<16 base32>")
    stale = revision(b"other")
    assert _code(memory, "../b.md", secret * 10, stale) == "invalid_path"
    assert _code(memory, "A.md", secret * 10, stale) == "invalid_path"
    assert _code(memory, "a.md", secret * 10, stale) == "limit_exceeded"
    assert _code(memory, "b.md", secret, stale) == "limit_exceeded"
    assert _code(memory, "a.md", secret, stale) == "rejected_content"
    assert _code(memory, "a.md", "y", stale) == "conflict"
    assert _code(memory, "../b.md", secret, "latest") == "invalid_request"


def _code(memory: Memory, path: str, content: str, expected: str) -> str:
    with pytest.raises(HubError) as refused:
        memory.put(path, content, expected)
    return refused.value.code


def test_an_answer_leaves_out_what_is_absent_and_is_compact(memory: Memory) -> None:
    memory.put("x.md", '\u8bb0 \u2028 "q"\n')
    sent = encode(memory.show("x.md"))
    assert "\u8bb0".encode() in sent
    assert set(json.loads(sent)) == {"path", "exists", "revision", "text", "truncated"}
    assert json.loads(encode(memory.find("nothing"))) == {
        "matches": [],
        "scanned_files": 1,
        "skipped_files": 0,
        "incomplete": False,
        "truncated": False,
    }
    with pytest.raises(TypeError):
        encode(object())  # type: ignore[arg-type]


def test_what_a_killed_process_left_is_swept_and_never_seen_before(memory: Memory) -> None:
    memory.put("a/x.md", "needle\n")
    left = [
        memory.offline(f"{folder}.amux-0123456789abcdef.tmp", "needle") for folder in ("", "a/")
    ]
    kept = memory.offline(".amux-notes.md", "needle")
    hidden = memory.offline(".git/.amux-0123456789abcdef.tmp", "someone else's")
    assert memory.found("needle") == ["a/x.md"]
    assert memory.find("needle").skipped_files == 0
    assert memory.store.sweep() == 2
    assert [path.exists() for path in (*left, kept, hidden)] == [False, False, True, True]
    assert memory.store.sweep() == 0


def test_the_sweep_follows_no_symlink_and_bears_a_missing_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = outside / ".amux-0123456789abcdef.tmp"
    precious.write_text("mine")
    memory = open_memory(tmp_path / "home")
    assert memory.store.sweep() == 0
    memory.put("x.md", "x")
    (memory.folder / "link").symlink_to(outside)
    (memory.folder / ".amux-00.tmp").symlink_to(precious)
    assert memory.store.sweep() == 0
    assert precious.read_text() == "mine"
