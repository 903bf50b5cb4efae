"""An editor saves past the Hub while it writes or deletes: nobody's text is lost."""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING

import pytest

from amux.hub.errors import Conflict
from amux.hub.filesystem import FileSystem
from amux.hub.values import ABSENT
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAVED = "what the editor saved\n"


def by_rename(path: Path) -> None:
    """Save as most editors do."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name("x.md~")
    beside.write_text(SAVED)
    beside.rename(path)


def in_place(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(SAVED)


def by_a_backup(path: Path) -> None:
    """Save as vim does: the old file steps aside, then a new one is made."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(path.with_name("x.md.bak"))
    path.write_text(SAVED)


SAVES: dict[str, Callable[[Path], None]] = {
    "rename": by_rename,
    "in place": in_place,
    "backup": by_a_backup,
}


class Shared(FileSystem):
    """A disk on which an editor acts right before or after one call of the Hub's."""

    def __init__(self) -> None:
        self.acts: dict[tuple[str, str, int], Callable[[], object]] = {}
        self.counts: dict[str, int] = {}
        self.plain = False

    def at(self, when: str, call: str, act: Callable[[], object], *, number: int = 1) -> None:
        self.counts.clear()
        self.acts[when, call, number] = act

    def _act(self, when: str, call: str) -> None:
        act = self.acts.pop((when, call, self.counts[call]), None)
        if act is not None:
            act()

    def _begin(self, call: str) -> None:
        self.counts[call] = self.counts.get(call, 0) + 1
        self._act("before", call)

    def fsync(self, file: int) -> None:
        self._begin("fsync")
        super().fsync(file)
        self._act("after", "fsync")

    def create(self, name: str, folder: int) -> int:
        self._begin("create")
        return super().create(name, folder)

    def rename(self, old: str, new: str, folder: int) -> None:
        self._begin("rename")
        super().rename(old, new, folder)
        self._act("after", "rename")

    def exchange(self, one: str, other: str, folder: int) -> None:
        self._begin("exchange")
        if self.plain:
            raise OSError(errno.EINVAL, "not here")
        super().exchange(one, other, folder)
        self._act("after", "exchange")

    def rename_new(self, old: str, new: str, folder: int) -> None:
        self._begin("rename_new")
        if self.plain:
            raise OSError(errno.EINVAL, "not here")
        super().rename_new(old, new, folder)
        self._act("after", "rename_new")


def revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(name="disk")
def _disk() -> Shared:
    return Shared()


@pytest.fixture(name="memory")
def _memory(tmp_path: Path, disk: Shared) -> Memory:
    memory = open_memory(tmp_path, files=disk)
    memory.put("t/x.md", "old\n")
    memory.put("t/y.md", "keeps the folder\n")
    return memory


def held(memory: Memory, path: str = "t/x.md") -> str:
    """Return the document's text, and hold the store to have left nothing behind."""
    assert memory.store.sweep() == 0
    return (memory.folder / path).read_text()


def write(memory: Memory) -> object:
    return memory.put("t/x.md", "new\n", revision("old\n"))


def create(memory: Memory) -> object:
    return memory.put("t/new.md", "new\n", ABSENT)


def forget(memory: Memory) -> object:
    return memory.drop("t/x.md", revision("old\n"))


MOMENTS: list[tuple[Callable[[Memory], object], str]] = [
    (write, "create"),
    (write, "fsync"),
    (write, "exchange"),
    (create, "create"),
    (create, "rename_new"),
    (forget, "rename"),
]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize(
    ("verb", "call"), MOMENTS, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_save_before_the_step_that_shows_stands_and_the_caller_gets_a_conflict(
    memory: Memory, disk: Shared, verb: Callable[[Memory], object], call: str, save: str
) -> None:
    path = "t/new.md" if verb is create else "t/x.md"
    disk.at("before", call, lambda: SAVES[save](memory.folder / path))
    with pytest.raises(Conflict) as refused:
        verb(memory)
    assert disk.acts == {}
    assert refused.value.fields["revision"] == revision(SAVED)
    assert held(memory, path) == SAVED


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_second_save_while_the_first_one_is_put_back_is_the_one_that_stands(
    memory: Memory, disk: Shared, save: str, moment: str
) -> None:
    target = memory.folder / "t/x.md"

    def again() -> None:
        by_rename(target)
        target.write_text("the first save\n")
        # The second exchange puts this one back.
        disk.at(moment, "exchange", lambda: SAVES[save](target))
        disk.counts["exchange"] = 0 if moment == "before" else 1

    disk.at("before", "exchange", again)
    with pytest.raises(Conflict):
        write(memory)
    assert disk.acts == {}
    assert held(memory) == SAVED


@pytest.mark.parametrize("verb", [write, forget])
def test_an_editor_that_moved_the_document_away_meanwhile_makes_a_conflict(
    memory: Memory, disk: Shared, verb: Callable[[Memory], object]
) -> None:
    call = "exchange" if verb is write else "rename"
    target = memory.folder / "t/x.md"
    disk.at("before", call, lambda: target.rename(target.with_name("other.md")))
    with pytest.raises(Conflict) as refused:
        verb(memory)
    assert refused.value.fields["revision"] == ABSENT
    assert not target.exists()
    assert held(memory, "t/other.md") == "old\n"


@pytest.mark.parametrize("verb", [write, create, forget])
def test_a_save_that_comes_while_a_failed_step_is_undone_stands(
    memory: Memory, disk: Shared, verb: Callable[[Memory], object]
) -> None:
    path = "t/new.md" if verb is create else "t/x.md"

    def save_and_fail() -> None:
        by_rename(memory.folder / path)
        raise OSError(errno.EIO, "the folder cannot be synced")

    # A write syncs its file first, then the folder.
    disk.at("before", "fsync", save_and_fail, number=1 if verb is forget else 2)
    with pytest.raises(Exception, match=r"file system refused|changed"):
        verb(memory)
    assert disk.acts == {}
    assert held(memory, path) == SAVED


@pytest.mark.parametrize("save", SAVES)
def test_without_an_exchange_a_save_up_to_the_last_look_stands(
    memory: Memory, disk: Shared, save: str
) -> None:
    disk.plain = True
    disk.at("before", "exchange", lambda: SAVES[save](memory.folder / "t/x.md"))
    with pytest.raises(Conflict):
        write(memory)
    assert held(memory) == SAVED
    disk.at("before", "rename_new", lambda: SAVES[save](memory.folder / "t/new.md"))
    with pytest.raises(Conflict):
        create(memory)
    assert held(memory, "t/new.md") == SAVED


def test_what_took_the_documents_place_meanwhile_is_left_there_whatever_it_is(
    memory: Memory, disk: Shared, tmp_path: Path
) -> None:
    target = memory.folder / "t/x.md"

    def link() -> None:
        target.unlink()
        target.symlink_to(tmp_path / "elsewhere")

    disk.at("before", "exchange", link)
    with pytest.raises(Exception, match="symlink"):
        write(memory)
    assert target.is_symlink()
    assert memory.store.sweep() == 0
