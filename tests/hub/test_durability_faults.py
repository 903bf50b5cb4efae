"""A full or a broken disk at every step of a write and of a delete, one step at a time."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.hub.errors import StorageFailed
from amux.hub.filesystem import FileSystem
from amux.hub.folders import held_most
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Disk(FileSystem):
    """Fails its n-th changing call with an error, or shortens every write; keeps a record."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail_at = 0
        self.code = errno.EIO
        self.short = False
        self.refuse_links = False
        self.refuse_flags = False

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))

    def create(self, name: str, folder: int) -> int:
        self._step("create")
        return super().create(name, folder)

    def write(self, file: int, data: bytes) -> int:
        self._step("write")
        return super().write(file, data[:7] if self.short else data)

    def fsync(self, file: int) -> None:
        self._step("fsync")
        super().fsync(file)

    def link(self, old: str, new: str, folder: int) -> None:
        self._step("link")
        if self.refuse_links:
            raise OSError(errno.EPERM, "no hard links here")
        super().link(old, new, folder)

    def rename(self, old: str, new: str, folder: int) -> None:
        self._step("rename")
        super().rename(old, new, folder)

    def exchange(self, one: str, other: str, folder: int) -> None:
        self._step("exchange")
        if self.refuse_flags:
            raise OSError(errno.EINVAL, "renameat2 takes no flags here")
        super().exchange(one, other, folder)

    def rename_new(self, old: str, new: str, folder: int) -> None:
        self._step("rename_new")
        if self.refuse_flags:
            raise OSError(errno.EINVAL, "renameat2 takes no flags here")
        super().rename_new(old, new, folder)

    def unlink(self, name: str, folder: int) -> None:
        self._step("unlink")
        super().unlink(name, folder)

    def mkdir(self, name: str, folder: int) -> None:
        self._step("mkdir")
        super().mkdir(name, folder)

    def rmdir(self, name: str, folder: int) -> None:
        self._step("rmdir")
        super().rmdir(name, folder)


def change(memory: Memory) -> object:
    return memory.put("t/x.md", "new\n", memory.show("t/x.md").revision)


def create(memory: Memory) -> object:
    return memory.put("t/deep/new.md", "new\n")


def delete(memory: Memory) -> object:
    return memory.drop("t/x.md", memory.show("t/x.md").revision)


STEPS: dict[str, list[str]] = {
    "replace": ["create", "write", "fsync", "exchange", "fsync", "unlink"],
    "create": ["mkdir", "fsync", "create", "write", "fsync", "rename_new", "fsync"],
    "delete": ["rename", "fsync", "unlink"],
}
# On a file system that can neither exchange two names nor rename without replacing.
PLAIN_STEPS: dict[str, list[str]] = {
    "replace": [
        *("create", "write", "fsync", "exchange"),
        *("link", "rename", "fsync", "unlink"),
    ],
    "create": ["mkdir", "fsync", "create", "write", "fsync", "rename_new", "rename", "fsync"],
    "delete": ["rename", "fsync", "unlink"],
}
CALLS: dict[str, Callable[[Memory], object]] = {
    "replace": change,
    "create": create,
    "delete": delete,
}
# A failure to remove the temporary name at the end harms nothing.
HARMLESS = {"replace", "delete"}


def fresh(folder: Path, *, plain: bool = False) -> tuple[Memory, Disk]:
    disk = Disk()
    disk.refuse_flags = plain
    memory = open_memory(folder, files=disk)
    memory.put("t/x.md", "old\n")
    memory.put("keep.md", "kept\n")
    disk.calls.clear()
    return memory, disk


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("verb", CALLS)
def test_the_steps_and_their_order(tmp_path: Path, verb: str, *, plain: bool) -> None:
    memory, disk = fresh(tmp_path, plain=plain)
    CALLS[verb](memory)
    steps = (PLAIN_STEPS if plain else STEPS)[verb]
    assert [step for step in disk.calls if step != "rmdir"] == steps


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("verb", CALLS)
def test_a_failing_step_leaves_the_old_document_whole_and_the_store_at_work(
    tmp_path: Path, verb: str, code: int, *, plain: bool
) -> None:
    call, steps = CALLS[verb], (PLAIN_STEPS if plain else STEPS)[verb]
    for number in range(1, len(steps) + 1):
        memory, disk = fresh(tmp_path / str(number), plain=plain)
        before = memory.tree()
        disk.fail_at, disk.code = number, code
        if number == len(steps) and verb in HARMLESS:
            call(memory)
            assert memory.store.sweep() == 1
            continue
        with pytest.raises(StorageFailed, match="file system refused") as failed:
            call(memory)
        assert str(tmp_path) not in failed.value.message
        assert memory.tree() == before, steps[number - 1]
        assert not (memory.folder / "t/deep").exists()
        disk.fail_at = 0
        call(memory)
        other = memory.put("other.md", "other\n")
        memory.drop("other.md", other.revision)
        assert memory.store.sweep() == 0


def test_a_short_write_goes_on_until_everything_is_written(tmp_path: Path) -> None:
    memory, disk = fresh(tmp_path)
    disk.short = True
    memory.put("long.md", "\u8bb0\u5fc6" * 20)
    assert memory.show("long.md").text == "\u8bb0\u5fc6" * 20
    assert disk.calls.count("write") == 18


def test_with_neither_exchange_nor_links_everything_works_but_the_undoing(tmp_path: Path) -> None:
    memory, disk = fresh(tmp_path, plain=True)
    disk.refuse_links = True
    change(memory)
    create(memory)
    delete(memory)
    assert memory.tree() == {"global/keep.md": b"kept\n", "global/t/deep/new.md": b"new\n"}
    written = memory.put("t/x.md", "old\n")
    disk.calls.clear()
    disk.fail_at = PLAIN_STEPS["replace"].index("rename") + 2
    with pytest.raises(StorageFailed):
        memory.put("t/x.md", "new\n", written.revision)
    assert memory.show("t/x.md").text == "new\n"


def test_a_retry_that_finds_its_content_brings_it_to_the_disk_before_it_says_so(
    tmp_path: Path,
) -> None:
    memory, _ = fresh(tmp_path)
    disk = Disk()
    restarted = open_memory(tmp_path, files=disk)
    assert restarted.put("t/x.md", "old\n").unchanged
    # memory, global and t, met for the first time, then the file and its folder.
    assert disk.calls == ["fsync"] * 5
    disk.calls.clear()
    assert restarted.put("t/x.md", "old\n").unchanged
    assert disk.calls == ["fsync"] * 2
    disk.calls.clear()
    disk.fail_at = 1
    with pytest.raises(StorageFailed):
        restarted.put("t/x.md", "old\n")
    assert memory.show("t/x.md").text == "old\n"


def test_a_retried_delete_brings_the_absence_to_the_disk_before_it_says_so(
    tmp_path: Path,
) -> None:
    memory, disk = fresh(tmp_path)
    assert memory.drop("t/none.md", "absent").already_absent
    assert disk.calls == ["fsync"]
    disk.fail_at = 2
    with pytest.raises(StorageFailed):
        memory.drop("t/none.md", "absent")


def test_a_parent_is_brought_to_the_disk_once_for_a_folder_that_another_process_made(
    tmp_path: Path,
) -> None:
    disk = Disk()
    memory = open_memory(tmp_path, files=disk)
    memory.offline("a/b/x.md", "offline\n")
    memory.put("a/b/y.md", "one\n")
    first = disk.calls.count("fsync")
    disk.calls.clear()
    memory.put("a/b/z.md", "one\n")
    assert first == disk.calls.count("fsync") + 4


def test_an_unreadable_disk_is_said_to_be_one(tmp_path: Path) -> None:
    class Unlistable(Disk):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            raise OSError(errno.EIO, f"descriptor {folder} cannot be listed")

    memory = open_memory(tmp_path, files=Unlistable())
    memory.offline("x.md", "needle\n")
    with pytest.raises(StorageFailed):
        memory.show("missing.md")
    assert memory.show("x.md").text == "needle\n"
    assert memory.find("needle").skipped_files == 1


def test_a_home_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    memory = open_memory(tmp_path / "home")
    (tmp_path / "home").rmdir()
    for call in (
        lambda: memory.show("x.md"),
        lambda: memory.put("x.md", "x"),
        lambda: memory.drop("x.md", "absent"),
        lambda: memory.find("x"),
    ):
        with pytest.raises(StorageFailed):
            call()


def rebuilt(memory: Memory, disk: Disk, folder: str) -> None:
    """Remove a folder as a person does, write into it again, and hold its parent to be synced."""
    shutil.rmtree(memory.folder / folder)
    disk.calls.clear()
    memory.put(f"{folder}/x.md", "again\n")
    assert disk.calls == ["mkdir", *STEPS["create"][1:]], folder


def test_a_folder_that_comes_back_with_an_old_inode_number_is_brought_to_the_disk_again(
    tmp_path: Path,
) -> None:
    memory, disk = fresh(tmp_path)
    memory.put("a/b/x.md", "one\n")
    # Most file systems give the number of the folder that was just removed.
    for _ in range(20):
        rebuilt(memory, disk, "t")
        rebuilt(memory, disk, "a/b")


def test_a_folder_that_was_moved_elsewhere_is_brought_to_the_disk_in_its_new_place(
    tmp_path: Path,
) -> None:
    memory, disk = fresh(tmp_path)
    memory.put("a/b/x.md", "one\n")
    memory.put("c/x.md", "one\n")
    (memory.folder / "a/b").rename(memory.folder / "c/d")
    disk.calls.clear()
    memory.put("c/d/y.md", "one\n")
    assert disk.calls == ["fsync", "create", "write", "fsync", "rename_new", "fsync"]
    (memory.folder / "c").rename(memory.folder / "e")
    disk.calls.clear()
    memory.put("e/d/z.md", "one\n")
    # e in the scope, and d in e: nobody can tell any more whose child d was.
    assert disk.calls == ["fsync", "fsync", "create", "write", "fsync", "rename_new", "fsync"]


@pytest.fixture(name="few_files")
def _few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_of_many_folders_a_part_is_held_and_each_is_brought_to_the_disk(tmp_path: Path) -> None:
    memory, disk = fresh(tmp_path)
    for number in range(held_most() + 8):
        (memory.folder / "many" / str(number)).mkdir(parents=True)
        disk.calls.clear()
        memory.put(f"many/{number}/x.md", "one\n")
        assert disk.calls.count("fsync") >= STEPS["create"].count("fsync")
    held = [path for path in Path("/proc/self/fd").iterdir() if links_below(path, tmp_path)]
    assert 0 < len(held) <= held_most() == 64


def links_below(link: Path, folder: Path) -> bool:
    try:
        return link.readlink().is_relative_to(folder)
    except OSError:
        return False
