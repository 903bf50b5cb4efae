"""Each bound of one search, and that its pages together miss nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from amux.hub.filesystem import FileSystem
from amux.hub.limits import Limits
from amux.hub.wire import encode
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import pytest

    from amux.hub.values import SearchAnswer


def pages(memory: Memory, query: str, *, prefix: str = "") -> list[SearchAnswer]:
    """Follow the cursor to the end, which each page has to bring nearer."""
    answers = [memory.find(query, prefix=prefix)]
    while answers[-1].incomplete:
        cursor = answers[-1].cursor
        assert cursor is not None
        assert cursor > (answers[-2].cursor or "" if len(answers) > 1 else "")
        answers.append(memory.find(query, prefix=prefix, cursor=cursor))
    assert answers[-1].cursor is None
    return answers


def test_1024_files_are_one_page_and_one_more_makes_two(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, monotonic=lambda: 0.0)
    for number in range(1024):
        memory.offline(f"f{number // 100:02}/n{number:04}.md", "needle")
    answer = memory.find("needle")
    assert (answer.scanned_files, answer.incomplete, answer.cursor) == (1024, False, None)
    memory.offline("z.md", "needle")
    first, second = pages(memory, "needle")
    assert (first.scanned_files, first.cursor) == (1024, "f10/n1023.md")
    assert [match.path for match in second.matches] == ["z.md"]


def test_8_mib_are_one_page_and_one_byte_more_makes_two(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, monotonic=lambda: 0.0)
    for number in range(8):
        memory.offline(f"n{number}.md", b"x" * (1024 * 1024))
    assert not memory.find("needle").incomplete
    memory.offline("n8.md", "needle")
    first, second = pages(memory, "needle")
    assert (first.scanned_files, first.cursor, first.matches) == (8, "n7.md", ())
    assert second.scanned_files == 1
    assert [match.path for match in second.matches] == ["n8.md"]


def test_250_ms_end_a_page_but_never_before_it_has_moved_on(tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        return now

    class Slow(FileSystem):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            nonlocal now
            now += 10.0
            return super().scan(folder)

    memory = open_memory(tmp_path, monotonic=clock, files=Slow())
    for path in ("a/x.md", "b/y.md", "c.md"):
        memory.offline(path, "needle")
    answers = pages(memory, "needle")
    assert [answer.scanned_files for answer in answers] == [1, 0, 1, 0, 1]
    assert [answer.cursor for answer in answers] == ["a/x.md", "a0", "b/y.md", "b0", None]

    ticks = iter([0.0, 0.1, 0.2, 0.249, 0.25, 0.3])
    timed = open_memory(tmp_path, monotonic=lambda: next(ticks))
    for number in range(5):
        timed.offline(f"a/n{number}.md", "needle")
    answer = timed.find("needle")
    assert answer.incomplete
    assert answer.cursor == "a/n3.md"


def test_directory_entries_are_bounded(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(walk_entries=10))
    for folder in "abc":
        for number in range(8):
            memory.offline(f"{folder}/junk{number}", "")
        memory.offline(f"{folder}/x.md", "needle")
    answers = pages(memory, "needle")
    assert [match.path for answer in answers for match in answer.matches] == [
        "a/x.md",
        "b/x.md",
        "c/x.md",
    ]
    assert len(answers) > 1


def test_a_folder_with_too_many_entries_is_skipped_whole_and_counted(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(folder_entries=10))
    for number in range(11):
        memory.offline(f"full/n{number}.md", "needle")
    for number in range(10):
        memory.offline(f"just/n{number}.md", "needle")
    answer = memory.find("needle")
    assert (answer.scanned_files, answer.skipped_files, answer.incomplete) == (10, 1, False)


def test_skipped_files_count_towards_the_bound_and_keep_the_cursor_moving(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(search_files=3))
    for number in range(7):
        memory.offline(f"bad{number}.md", b"\xff")
    memory.offline("good.md", "needle")
    answers = pages(memory, "needle")
    assert [answer.skipped_files for answer in answers] == [3, 3, 1]
    assert [match.path for match in answers[-1].matches] == ["good.md"]


def test_an_unlistable_root_of_the_scope_is_skipped_and_not_an_end_without_a_word(
    tmp_path: Path,
) -> None:
    memory = open_memory(tmp_path, limits=Limits(folder_entries=2))
    for name in "abc":
        memory.offline(f"{name}.md", "needle")
    answer = memory.find("needle")
    assert (answer.scanned_files, answer.skipped_files) == (0, 1)


def test_the_order_of_a_listing_does_not_matter(tmp_path: Path) -> None:
    class Shuffled(FileSystem):
        def scan(self, folder: int) -> os._ScandirIterator[str]:
            return _Shuffled(super().scan(folder))  # type: ignore[return-value]

    memory = open_memory(tmp_path, limits=Limits(search_files=2), files=Shuffled())
    names = ["a-b.md", "a.md", "a/x.md", "a/y/z.md", "ab.md", "b/c.md"]
    for name in names:
        memory.offline(name, "needle")
    answers = pages(memory, "needle")
    assert [match.path for answer in answers for match in answer.matches] == names
    assert [answer.cursor for answer in answers] == ["a.md", "a/y/z.md", None]


class _Shuffled:
    def __init__(self, entries: os._ScandirIterator[str]) -> None:
        with entries:
            self._entries = list(entries)
        random.Random(5).shuffle(self._entries)  # noqa: S311  # an order, not a secret

    def __enter__(self) -> list[os.DirEntry[str]]:
        return self._entries

    def __exit__(self, *_: object) -> None:
        return None


def test_a_document_that_vanishes_while_it_is_searched_is_no_match(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    for name in ("a.md", "b.md"):
        memory.offline(name, "needle")

    def vanish() -> float:
        (memory.folder / "a.md").unlink(missing_ok=True)
        return 0.0

    hasty = open_memory(tmp_path, now=vanish)
    answer = hasty.find("needle")
    assert [match.path for match in answer.matches] == ["b.md"]
    assert not answer.truncated


def test_a_cursor_from_elsewhere_is_a_place_in_the_order_and_no_error(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    for name in ("a/x.md", "b.md"):
        memory.offline(name, "needle")
    for cursor, found in {
        "": 2,
        "a": 2,
        "a/x": 2,
        "a/x.md": 1,
        "a/x.md/deeper": 1,
        "../..": 2,
        "b.md": 0,
        "\U0010ffff": 0,
    }.items():
        assert memory.find("needle", cursor=cursor).scanned_files == found, cursor


def test_the_cursor_counts_in_the_size_of_the_answer(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(search_files=1))
    folder = '"' * 254
    memory.offline(f"{folder}/{folder}/{folder}/{folder[:200]}.md", "needle " * 1000)
    memory.offline(f"{folder}/{folder}/{folder}/z.md", "needle")
    answer = memory.find("needle")
    assert answer.incomplete
    assert len(answer.matches) == 1
    assert len(encode(answer)) <= 8192


paths = st.lists(
    st.lists(
        st.sampled_from(["a", "a-", "a0", "b", "\u8bb0", "\U0001f600"]), min_size=1, max_size=4
    )
    .map("/".join)
    .map(lambda path: path + ".md"),
    max_size=8,
    unique=True,
)


def test_folders_without_documents_do_not_hold_a_search_up(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, limits=Limits(walk_entries=10))
    for number in range(5):
        for entry in range(8):
            memory.offline(f"junk{number}/f{entry}", "")
    memory.offline("z.md", "needle")
    answers = pages(memory, "needle")
    assert [match.path for match in answers[-1].matches] == ["z.md"]
    assert len(answers) > 2


@settings(max_examples=60)
@given(paths, st.integers(1, 3), st.integers(1, 8), st.integers(1, 60))
def test_pages_cover_every_document_once_in_path_order_whatever_the_bounds(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], files: int, entries: int, size: int
) -> None:
    limits = Limits(search_files=files, walk_entries=entries, search_bytes=size)
    memory = open_memory(tmp_path_factory.mktemp("pages"), limits=limits)
    for path in paths:
        memory.offline(path, "needle and some more text")
    found = [match.path for answer in pages(memory, "needle") for match in answer.matches]
    assert found == sorted(paths)
