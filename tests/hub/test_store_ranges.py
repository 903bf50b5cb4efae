"""Lines and offsets of a document, cut to the size of one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amux.hub.documents import BOM, Document
from amux.hub.errors import InvalidRequest
from amux.hub.fragments import count_lines, fragment
from amux.hub.limits import Limits
from amux.hub.values import Fragment, GetRequest
from amux.hub.wire import encode
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    from pathlib import Path

FIVE = "one\ntwo\nthree\nfour\nfive"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    memory = open_memory(tmp_path)
    memory.put("five.md", FIVE)
    return memory


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (0, 0, FIVE),
        (1, 0, FIVE),
        (2, 3, "two\nthree\n"),
        (0, 1, "one\n"),
        (3, 3, "three\n"),
        (5, 5, "five"),
        (4, 99, "four\nfive"),
        (5, 0, "five"),
        (6, 0, ""),
        (99, 100, ""),
        (10**30, 10**31, ""),
        (1, 10**30, FIVE),
    ],
)
def test_lines_are_1_based_and_inclusive(memory: Memory, start: int, end: int, text: str) -> None:
    shown = memory.show("five.md", start=start, end=end)
    assert (shown.text, shown.truncated, shown.next_offset) == (text, False, None)


@pytest.mark.parametrize(
    "asked",
    [
        GetRequest(path="five.md", start_line=3, end_line=2),
        GetRequest(path="five.md", start_line=1, offset=4),
        GetRequest(path="five.md", start_line=-1),
        GetRequest(path="five.md", end_line=-1),
        GetRequest(path="five.md", offset=-1),
    ],
)
def test_a_range_that_says_nothing_or_two_things_is_refused(
    memory: Memory, asked: GetRequest
) -> None:
    with pytest.raises(InvalidRequest):
        memory.store.get(memory.scope, asked)


def test_an_offset_stands_between_characters_and_past_the_end_is_empty(memory: Memory) -> None:
    memory.put("x.md", "a\u8bb0b\n")
    assert memory.show("x.md", offset=1).text == "\u8bb0b\n"
    assert memory.show("x.md", offset=4).text == "b\n"
    assert memory.show("x.md", offset=4, end=1).text == "b\n"
    for inside in (2, 3):
        with pytest.raises(InvalidRequest, match="inside a character"):
            memory.show("x.md", offset=inside)
    for past in (6, 7, 10**12, 10**30):
        shown = memory.show("x.md", offset=past)
        assert (shown.text, shown.truncated) == ("", False)
    memory.put("y.md", "one\ntwo\n")
    assert memory.show("y.md", offset=6, end=1).text == ""
    memory.offline("bom.md", b"\xef\xbb\xbftext")
    with pytest.raises(InvalidRequest, match="inside a character"):
        memory.show("bom.md", offset=1)


def test_a_missing_document_is_an_answer_and_no_error(memory: Memory) -> None:
    for asked in ({}, {"start": 5}, {"offset": 7}):
        shown = memory.show("no/such.md", **asked)
        assert shown == Fragment(path="no/such.md", exists=False, revision="absent")


@pytest.mark.parametrize(
    ("data", "lines"),
    [(b"", 0), (b"x", 1), (b"x\n", 1), (b"\n", 1), (b"\n\n", 2), (b"a\nb", 2), (b"a\r\nb\r", 2)],
)
def test_lines_are_newlines_and_an_unterminated_last_one(data: bytes, lines: int) -> None:
    assert count_lines(data) == lines


def test_an_answer_of_exactly_8_kib_is_whole_and_one_byte_more_is_cut(memory: Memory) -> None:
    frame = len(encode(Fragment(path="x.md", exists=True, revision="0" * 64, text="")))
    exact = "x" * (8192 - frame)
    written = memory.put("x.md", exact)
    shown = memory.show("x.md")
    assert len(encode(shown)) == 8192
    assert (shown.text, shown.truncated) == (exact, False)
    memory.put("x.md", exact + "y", written.revision)
    cut = memory.show("x.md")
    assert cut.truncated
    assert cut.next_offset == len(cut.text)
    assert 8192 - 40 < len(encode(cut)) <= 8192


# Characters of each length in UTF-8 and in JSON: escaped, doubled, six for one.
letters = st.sampled_from(
    [
        "a",
        "\n",
        "\r\n",
        '"',
        "\\",
        "\x01",
        "\x7f",
        "\u00e9",
        "\u2028",
        "\u8bb0",
        "\U0001f600",
        "\u200d",
    ]
)
texts = st.builds(
    lambda parts, times: ("".join(parts) * times)[:30_000],
    st.lists(letters, max_size=40),
    st.sampled_from([1, 40, 700]),
)


@settings(max_examples=120)
@given(
    texts,
    st.integers(0, 30),
    st.integers(0, 60),
    st.sampled_from([b"", BOM]),
    st.integers(400, 8192),
)
@example("\u8bb0" * 10_000, 0, 0, BOM, 8192)
@example("\x01" * 10_000, 0, 0, b"", 401)
def test_the_fragments_of_any_range_join_to_the_text_and_none_exceeds_an_answer(
    text: str,
    start: int,
    end: int,
    bom: bytes,
    most: int,
) -> None:
    if end < start:
        end = 0
    limits = Limits(response_bytes=most)
    data = bom + text.encode()
    document = Document(data, 0.0)
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    expected = "".join(lines[max(start - 1, 0) : end or None])
    joined, asked = "", GetRequest(path="\u8bb0.md", start_line=start, end_line=end)
    for _ in range(len(data) + 2):
        piece = fragment(document, asked, limits)
        assert len(encode(piece)) <= most
        assert piece.revision == document.revision
        joined += piece.text
        if not piece.truncated:
            break
        assert piece.text
        assert piece.next_offset is not None
        asked = GetRequest(path="\u8bb0.md", end_line=end, offset=piece.next_offset)
    assert joined == expected


@settings(max_examples=60)
@given(st.text(min_size=1, max_size=30), st.integers(1, 130))
def test_any_offset_gives_the_rest_or_says_that_it_cuts_a_character(text: str, offset: int) -> None:
    data = text.encode()
    document = Document(data, 0.0)
    starts = {len(text[:index].encode()) for index in range(len(text) + 1)}
    asked = GetRequest(path="x.md", offset=offset)
    if offset < len(data) and offset not in starts:
        with pytest.raises(InvalidRequest):
            fragment(document, asked, Limits())
    elif not (offset < 3 and text.startswith("\ufeff")):
        assert fragment(document, asked, Limits()).text == data[offset:].decode()
