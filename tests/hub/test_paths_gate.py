"""What a path may be, and that no verb leaves its scope."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amux.hub.errors import InvalidPath, StorageFailed
from amux.hub.filesystem import FileSystem
from amux.hub.limits import Limits
from amux.hub.paths import parse_document, twin_key
from amux.hub.values import ABSENT, Scope
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

VERBS: dict[str, Callable[[Memory, str], object]] = {
    "get": lambda memory, path: memory.show(path),
    "upsert": lambda memory, path: memory.put(path, "text\n"),
    "forget": lambda memory, path: memory.drop(path, "0" * 64),
    "search": lambda memory, path: memory.find("text", prefix=path),
}
verbs = pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))

REFUSED = {
    "absolute": "/etc/x.md",
    "parent": "../x.md",
    "inner parent": "a/../../x.md",
    "here": "./x.md",
    "inner here": "a/./x.md",
    "empty segment": "a//x.md",
    "hidden file": ".x.md",
    "hidden folder": "a/.git/x.md",
    "temporary": ".amux-0123456789abcdef.tmp",
    "newline": "a\nb.md",
    "nul": "a\x00b.md",
    "escape": "a\x1b[2Jb.md",
    "delete": "a\x7fb.md",
    "zero width": "a\u200bb.md",
    "bidi": "a\u202eb.md",
    "line separator": "a\u2028b.md",
    "decomposed": unicodedata.normalize("NFD", "caf\u00e9.md"),
    "lone surrogate": "a\ud800.md",
    "long path": "a/" * 511 + "xyz.md",
    "long segment": "a" * 253 + ".md",
}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def open_files() -> int:
    return len(names(Path("/proc/self/fd")))


@verbs
@pytest.mark.parametrize("path", REFUSED.values(), ids=list(REFUSED))
def test_every_verb_refuses_the_path_and_touches_nothing(
    tmp_path: Path, path: str, verb: Callable[[Memory, str], object]
) -> None:
    memory = open_memory(tmp_path)
    memory.offline("a/x.md", "text\n")
    (tmp_path / "x.md").write_text("text\n")
    before = memory.tree()
    with pytest.raises(InvalidPath) as refused:
        verb(memory, path)
    assert str(tmp_path) not in refused.value.message
    refused.value.body()["error"]["message"].encode()  # type: ignore[union-attr]
    assert memory.tree() == before


@pytest.mark.parametrize("path", ["", "x", "x.txt", "x.MD", "a.md/", "x.md.bak", "MEMORY.MD"])
def test_a_document_path_ends_with_md(tmp_path: Path, path: str) -> None:
    memory = open_memory(tmp_path)
    for verb in ("get", "upsert", "forget"):
        with pytest.raises(InvalidPath):
            VERBS[verb](memory, path)
    assert memory.tree() == {}


def test_a_path_of_1024_bytes_works_in_every_verb_and_one_byte_more_in_none(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path)
    longest = "/".join(["\u00e9" * 100] * 5) + "/" + "x" * 16 + ".md"
    assert len(longest.encode()) == 1024
    written = memory.put(longest, "text\n")
    assert memory.show(longest).text == "text\n"
    assert memory.found("text", prefix=longest) == [longest]
    assert not memory.drop(longest, written.revision).already_absent
    for verb in VERBS.values():
        with pytest.raises(InvalidPath) as refused:
            verb(memory, "y" + longest)
        assert refused.value.fields == {"limit": "path_bytes", "maximum": 1024, "size": 1025}


def test_a_path_of_120_folders_works_without_holding_them_all_open(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    deep = "d/" * 120 + "x.md"
    memory.put(deep, "needle\n")
    memory.put("d/" * 100 + "y.md", "needle\n")
    memory.put("d/" * 20 + "z.md", "needle\n")
    most = 0

    class Counting(FileSystem):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            nonlocal most
            most = max(most, open_files())
            return super().scan(folder)

    idle = open_files()
    counted = open_memory(tmp_path, files=Counting())
    assert counted.found("needle") == [deep, "d/" * 100 + "y.md", "d/" * 20 + "z.md"]
    assert most - idle < 30
    assert open_files() == idle


@verbs
def test_a_symlink_is_followed_nowhere(
    tmp_path: Path, verb: Callable[[Memory, str], object]
) -> None:
    memory = open_memory(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.md").write_text("text\n")
    memory.offline("a/own.md", "other\n")
    (memory.folder / "link.md").symlink_to(outside / "x.md")
    (memory.folder / "dangling.md").symlink_to(outside / "new.md")
    (memory.folder / "folder").symlink_to(outside)
    (memory.folder / "a" / "inner").symlink_to(outside)
    for path in ("link.md", "dangling.md", "folder/x.md", "folder/new.md", "a/inner/x.md"):
        if verb is VERBS["search"]:
            continue
        with pytest.raises(InvalidPath, match="symlink"):
            verb(memory, path)
    answer = memory.find("text other")
    assert [match.path for match in answer.matches] == ["a/own.md"]
    assert answer.skipped_files == 2
    with pytest.raises(InvalidPath, match="symlink"):
        memory.find("text", prefix="folder")
    assert names(outside) == ["x.md"]
    assert (outside / "x.md").read_text() == "text\n"


@verbs
@pytest.mark.parametrize("swapped", ["memory", "memory/global"])
def test_a_root_or_scope_that_is_a_symlink_is_a_fault_of_the_store(
    tmp_path: Path, verb: Callable[[Memory, str], object], swapped: str
) -> None:
    memory = open_memory(tmp_path / "home")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "home" / swapped
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StorageFailed, match="symlink"):
        verb(memory, "x.md")
    assert names(elsewhere) == []


def test_a_folder_swapped_for_a_symlink_in_the_middle_of_a_write_leads_nowhere(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    class Swapping(FileSystem):
        def create(self, name: str, folder: int) -> int:
            held = memory.folder / "topics"
            held.rename(memory.folder / "moved")
            held.symlink_to(outside)
            return super().create(name, folder)

    memory = open_memory(tmp_path, files=Swapping())
    memory.offline("topics/old.md", "old\n")
    memory.put("topics/new.md", "new\n")
    assert names(outside) == []
    assert (memory.folder / "moved" / "new.md").read_text() == "new\n"


@verbs
@pytest.mark.parametrize(
    ("existing", "asked"),
    [
        ("notes/Work.md", "notes/work.md"),
        ("Notes/work.md", "notes/work.md"),
        ("stra\u00dfe/a.md", "STRASSE/a.md"),
        (unicodedata.normalize("NFD", "caf\u00e9.md"), "caf\u00e9.md"),
        (unicodedata.normalize("NFD", "caf\u00e9/x.md"), "CAF\u00c9/x.md"),
        ("\u0394\u03bf\u03ba.md", "\u03b4\u03bf\u03ba.md"),
    ],
)
def test_a_name_that_differs_only_by_case_or_form_is_refused_in_any_segment(
    tmp_path: Path, existing: str, asked: str, verb: Callable[[Memory, str], object]
) -> None:
    memory = open_memory(tmp_path)
    memory.offline(existing, "text\n")
    before = memory.tree()
    with pytest.raises(InvalidPath, match="only by case or Unicode form"):
        verb(memory, asked)
    assert memory.tree() == before


def test_a_twin_that_was_made_offline_does_not_disable_a_document(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    written = memory.put("plan.md", "one\n")
    memory.offline("Plan.md", "other\n")
    assert memory.show("plan.md").text == "one\n"
    again = memory.put("plan.md", "two\n", written.revision)
    assert memory.drop("plan.md", again.revision).revision == ABSENT
    assert memory.show("Plan.md").text == "other\n"


@pytest.mark.parametrize("path", ["memory.md", "Memory.md", "MEMORY.Md.md", "MemorY.md"])
def test_the_entry_has_one_spelling_even_before_it_exists(tmp_path: Path, path: str) -> None:
    memory = open_memory(tmp_path)
    if path == "MEMORY.Md.md":
        memory.put(path, "an ordinary name\n")
        return
    for verb in ("get", "upsert", "forget"):
        with pytest.raises(InvalidPath, match=r"MEMORY\.md"):
            VERBS[verb](memory, path)
    memory.put("topics/memory.md", "only the scope's own is the entry\n")


def test_a_folder_freed_by_a_delete_may_come_back_in_another_case(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    written = memory.put("Work/Plans/x.md", "x\n")
    memory.put("Work/keep.md", "x\n")
    memory.drop("Work/Plans/x.md", written.revision)
    memory.put("Work/plans/x.md", "x\n")
    with pytest.raises(InvalidPath):
        memory.put("work/x.md", "x\n")


def test_scopes_do_not_see_each_other(tmp_path: Path) -> None:
    everyone = open_memory(tmp_path)
    ann, bob = (
        Memory(everyone.store, everyone.root, Scope(name)) for name in ("ann", "../../global")
    )
    everyone.put("x.md", "everyone's\n")
    ann.put("x.md", "ann's\n")
    assert bob.show("x.md").revision == ABSENT
    bob.put("x.md", "bob's\n")
    assert [memory.show("x.md").text for memory in (everyone, ann, bob)] == [
        "everyone's\n",
        "ann's\n",
        "bob's\n",
    ]
    assert bob.folder.parent == everyone.root / "users"
    assert everyone.found("x's s") == ["x.md"]


segment = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["..", ".", "", "a", "b.md", "\u00e9", "e\u0301", "A", "\u200d", "~", "a:b", "\\"]
    ),
)


@given(st.lists(segment, min_size=1, max_size=5).map("/".join), st.sampled_from(["", ".md"]))
def test_any_text_is_refused_or_names_exactly_itself_below_the_scope(
    tmp_path_factory: pytest.TempPathFactory, path: str, suffix: str
) -> None:
    memory = open_memory(tmp_path_factory.mktemp("p"))
    path += suffix
    try:
        memory.put(path, "text\n")
    except InvalidPath:
        assert memory.tree() == {}
        return
    assert memory.tree() == {f"global/{path}": b"text\n"}
    assert unicodedata.is_normalized("NFC", path)
    assert memory.found("text") == [path]
    assert memory.show(path).text == "text\n"
    assert memory.put(path, "text\n").unchanged


@given(st.text(max_size=20))
def test_the_twin_key_is_the_same_for_all_forms_of_a_name(name: str) -> None:
    forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    assert len({twin_key(form) for form in forms}) == 1
    assert twin_key(name) == twin_key(twin_key(name))


def test_a_refusal_says_how_a_path_looks_instead() -> None:
    with pytest.raises(InvalidPath, match=r"projects/amux/decisions\.md"):
        parse_document("../x.md", Limits())
