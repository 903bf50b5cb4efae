"""Whatever somebody puts below the root, no call hangs, crashes or loses another document."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from amux.hub.errors import Conflict, HubError, InvalidPath, LimitExceeded, Undecodable
from amux.hub.filesystem import FileSystem
from fixtures.memory import open_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(20)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def folder(path: Path) -> None:
    path.mkdir()
    (path / "inner.md").write_text("needle inside\n")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 1024**3)


def one_over(path: Path) -> None:
    path.write_bytes(b"needle\n" + b"x" * (1024 * 1024 - 6))


def binary(path: Path) -> None:
    path.write_bytes(b"needle \xff\xfe\n")


def utf16(path: Path) -> None:
    path.write_bytes("needle\n".encode("utf-16"))


ODD: dict[str, tuple[Callable[[Path], None], type[HubError]]] = {
    "fifo": (fifo, InvalidPath),
    "socket": (unix_socket, InvalidPath),
    "folder": (folder, InvalidPath),
    "10 GiB": (sparse, LimitExceeded),
    "1 MiB and a byte": (one_over, LimitExceeded),
    "no UTF-8": (binary, Undecodable),
    "UTF-16": (utf16, Undecodable),
}


@pytest.mark.parametrize(("make", "error"), ODD.values(), ids=list(ODD))
def test_an_odd_thing_is_a_clear_error_itself_and_disables_nothing_else(
    tmp_path: Path, make: Callable[[Path], None], error: type[HubError]
) -> None:
    memory = open_memory(tmp_path)
    memory.put("t/before.md", "needle before\n")
    make(memory.folder / "t" / "odd.md")
    with pytest.raises(error):
        memory.show("t/odd.md")
    answer = memory.find("needle")
    seen = [match.path for match in answer.matches]
    is_folder = make is folder
    assert seen == ["t/before.md", *(["t/odd.md/inner.md"] if is_folder else [])]
    assert answer.skipped_files == (0 if is_folder else 1)
    assert not answer.incomplete
    written = memory.put("t/after.md", "needle after\n")
    memory.drop("t/after.md", written.revision)
    with pytest.raises(HubError):
        memory.put("t/odd.md", "text\n")
    with pytest.raises(HubError):
        memory.drop("t/odd.md", "0" * 64)


@pytest.mark.root
def test_a_device_is_never_opened(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.put("a.md", "needle\n")
    os.mknod(memory.folder / "zero.md", 0o666 | 0o020000, os.makedev(1, 5))
    for call in (
        lambda: memory.show("zero.md"),
        lambda: memory.put("zero.md", "x"),
        lambda: memory.drop("zero.md", "0" * 64),
    ):
        with pytest.raises(InvalidPath, match="not a regular file"):
            call()
    assert memory.find("needle").skipped_files == 1


def link_away(path: Path) -> None:
    outside = path.parents[3] / "outside.md"
    outside.write_text("needle outside\n")
    path.symlink_to(outside)


@pytest.mark.parametrize("make", [fifo, link_away, folder, sparse])
def test_a_document_that_becomes_something_odd_after_it_was_listed_is_skipped(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    class Swapping(FileSystem):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            with super().scan(folder) as entries:
                listed = list(entries)
            if any(entry.name == "odd.md" for entry in listed):
                (memory.folder / "t" / "odd.md").unlink()
                make(memory.folder / "t" / "odd.md")
            return nullcontext(listed)  # type: ignore[return-value]

    memory = open_memory(tmp_path / "home", files=Swapping())
    memory.offline("t/odd.md", "needle\n")
    memory.offline("u/fine.md", "needle\n")
    answer = memory.find("needle")
    assert [match.path for match in answer.matches] == ["u/fine.md"]
    assert (answer.scanned_files, answer.skipped_files) == (1, 1)


def test_a_file_of_1_mib_can_be_read_searched_and_replaced(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.offline("big.md", b"needle\n" + b"x" * (1024 * 1024 - 7))
    shown = memory.show("big.md")
    assert shown.truncated
    assert memory.found("needle") == ["big.md"]
    with pytest.raises(LimitExceeded):
        memory.put("big.md", "x" * 65537, shown.revision)
    memory.put("big.md", "smaller\n", shown.revision)


def test_an_undecodable_file_can_be_replaced_or_deleted_by_its_revision(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.offline("odd.md", b"\xff")
    memory.offline("odder.md", b"ok \xe4\xb8")
    with pytest.raises(Undecodable) as undecodable:
        memory.show("odd.md")
    with pytest.raises(Conflict) as conflict:
        memory.put("odd.md", "text\n")
    revision = conflict.value.revision
    assert undecodable.value.fields["revision"] == revision
    memory.put("odd.md", "text\n", revision)
    with pytest.raises(Undecodable) as undecodable:
        memory.show("odder.md")
    memory.drop("odder.md", str(undecodable.value.fields["revision"]))


def test_an_editors_save_is_seen_at_the_next_read_and_conflicts_with_a_write(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path)
    written = memory.put("x.md", "by the Hub\n")
    saved = memory.folder / "x.md~"
    saved.write_text("by an editor\n")
    saved.rename(memory.folder / "x.md")
    assert memory.show("x.md").text == "by an editor\n"
    assert memory.found("editor") == ["x.md"]
    with pytest.raises(Conflict) as conflict:
        memory.put("x.md", "by the Hub again\n", written.revision)
    (memory.folder / "x.md").write_text("in place\n")
    with pytest.raises(Conflict):
        memory.put("x.md", "by the Hub again\n", conflict.value.revision)
    (memory.folder / "x.md").unlink()
    assert not memory.show("x.md").exists
    assert memory.found("place") == []


def test_a_byte_order_mark_and_carriage_returns_are_kept_and_only_the_mark_is_hidden(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path)
    data = b"\xef\xbb\xbf# Title\r\nline two\r\n"
    memory.offline("x.md", data)
    shown = memory.show("x.md")
    assert shown.text == "# Title\r\nline two\r\n"
    assert memory.show("x.md", start=2).text == "line two\r\n"
    assert memory.show("x.md", offset=3).text == shown.text
    match = memory.find("line title").matches[0]
    assert (match.line, match.snippet, match.revision) == (1, "# Title", shown.revision)
    with pytest.raises(Conflict) as conflict:
        memory.put("x.md", shown.text)
    assert conflict.value.revision == shown.revision
    assert not memory.put("x.md", shown.text, shown.revision).unchanged


def test_a_checkout_with_its_repository_beside_is_searched_without_it(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.offline(".git/notes.md", "needle\n")
    memory.offline("a/.obsidian/x.md", "needle\n")
    memory.offline("a/readme.txt", "needle\n")
    memory.offline("a/x.md", "needle\n")
    answer = memory.find("needle")
    assert [match.path for match in answer.matches] == ["a/x.md"]
    assert (answer.scanned_files, answer.skipped_files) == (1, 0)


def test_names_that_no_path_can_hold_are_counted_as_skipped(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.put("a.md", "needle\n")
    memory.offline("cafe\u0301.md", "needle\n")
    memory.offline("line\nbreak/x.md", "needle\n")
    bad = os.fsencode(memory.folder) + b"/\xff\xfe.md"
    with open(bad, "wb") as file:  # noqa: PTH123  # a name that is no text
        file.write(b"needle\n")
    answer = memory.find("needle")
    assert [match.path for match in answer.matches] == ["a.md"]
    assert (answer.scanned_files, answer.skipped_files) == (1, 3)
    memory.put("b.md", "text\n")


def test_a_removed_scope_folder_is_made_again(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.put("a/x.md", "one\n")
    for path in (memory.folder / "a/x.md",):
        path.unlink()
    for path in (memory.folder / "a", memory.folder, memory.root):
        path.rmdir()
    assert memory.found("one") == []
    memory.put("a/x.md", "two\n")
    assert memory.show("a/x.md").text == "two\n"


def test_a_file_in_a_folders_place_is_a_clear_error(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.put("a.md", "text\n")
    for call in (
        lambda: memory.show("a.md/b.md"),
        lambda: memory.put("a.md/b.md", "x"),
        lambda: memory.find("text", prefix="a.md/b"),
    ):
        with pytest.raises(InvalidPath, match="not a folder"):
            call()
