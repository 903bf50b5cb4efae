"""What a query means and in which order its documents come."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amux.hub.errors import InvalidRequest, LimitExceeded
from amux.hub.search import best_line
from amux.hub.wire import encode
from fixtures.memory import Memory, open_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return open_memory(tmp_path)


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("The Deploy window", "deploy", True),
        ("the deploy window", "DEPLOY", True),
        ("\u90e8\u7f72\u7a97\u53e3\u5728\u5468\u56db", "\u90e8\u7f72\u7a97\u53e3", True),
        ("\u90e8\u7f72\u7684\u7a97\u53e3", "\u90e8\u7f72\u7a97\u53e3", False),
        ("\u90e8\u7f72\u7a97\u53e3", "\u7a97\u53e3\u3000\u6ca1\u6709", True),
        ("\ubc30\ud3ec \uc77c\uc815", "\ubc30\ud3ec", True),
        (
            "\u0440\u0430\u0437\u0432\u0451\u0440\u0442\u044b\u0432\u0430\u043d\u0438\u0435",
            "\u0432\u0451\u0440\u0442",
            True,
        ),
        (
            "\u0420\u0430\u0437\u0432\u0451\u0440\u0442",
            "\u0440\u0430\u0437\u0432\u0451\u0440\u0442",
            False,
        ),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            True,
        ),
        ("Stra\u00dfe", "STRASSE", False),
        ("a window.", "window?", True),
        ("a window", '"window"', True),
        ("a window", "(window),", True),
        ("\u7a97\u53e3", "\u300c\u7a97\u53e3\u300d\u3002", True),
        ("really ???", "???", True),
        ("really", "???", False),
        ("C++ and C#", "c++", True),
        ("only C", "c++", False),
        ("a.*b", "a.*b", True),
        ("axxb", "a.*b", False),
        ("$HOME `x`", "$HOME", True),
        ("[a-z]", "[a-z]", True),
        ("line one\nline two", "one line", True),
        ("snake_case", "_case", True),
        ("", "x", False),
    ],
)
def test_terms_are_literal_words(memory: Memory, text: str, query: str, *, found: bool) -> None:
    memory.put("n/doc1.md", text)
    assert bool(memory.found(query)) is found


def test_the_order_is_terms_then_headings_then_rarity_then_path(memory: Memory) -> None:
    for path, text in {
        "z/two.md": "alpha beta",
        "a/alpha.md": "nothing but a name",
        "b/title.md": "intro\n# About alpha\n",
        "c/second-heading.md": "# First\n# alpha\n",
        "d/text.md": "alpha",
        "e/text.md": "alpha",
        "f/rare.md": "gamma",
    }.items():
        memory.put(path, text)
    assert memory.found("alpha beta gamma") == [
        "z/two.md",
        "a/alpha.md",
        "b/title.md",
        "f/rare.md",
        "c/second-heading.md",
        "d/text.md",
        "e/text.md",
    ]


def test_a_more_specific_query_keeps_the_exact_hit_first(memory: Memory) -> None:
    for number in range(30):
        memory.put(f"noise{number:02}.md", "the gateway restarts\n")
    memory.put("zz.md", "error ECONNREFUSED\n")
    assert memory.find("gateway ECONNREFUSED", limit=5).matches[0].path == "zz.md"


def test_a_term_that_is_repeated_counts_once(memory: Memory) -> None:
    memory.put("a.md", "one")
    memory.put("b.md", "one two")
    assert memory.found("one ONE one. two") == ["b.md", "a.md"]


def test_the_line_shown_is_the_first_with_most_terms(memory: Memory) -> None:
    memory.put("x.md", "# T\n\nalpha\n  beta alpha beta  \nalpha beta\n")
    match = memory.find("beta alpha zeta").matches[0]
    assert (match.line, match.snippet, match.truncated) == (4, "beta alpha beta", False)
    memory.put("only-in-path.md", "# Heading\ntext\n")
    match = memory.find("only-in-path").matches[0]
    assert (match.line, match.snippet) == (1, "# Heading")


def test_a_long_line_is_cut_around_its_first_term_between_code_points(memory: Memory) -> None:
    memory.put("x.md", "\u8bb0\u5fc6" * 500 + "needle" + "\U0001f600" * 500 + "\n")
    match = memory.find("NEEDLE").matches[0]
    assert match.truncated
    assert "needle" in match.snippet
    assert len(match.snippet.encode()) <= 240
    assert set(match.snippet) == set("\u8bb0\u5fc6needle\U0001f600")


def test_age_is_whole_days_since_the_file_changed(tmp_path: Path) -> None:
    memory = open_memory(tmp_path, now=lambda: 1_000_000_000.0)
    for name, seconds in {"new": -50, "fresh": 86399, "old": 86400, "older": 86400 * 400}.items():
        path = memory.offline(f"{name}.md", "needle")
        os.utime(path, (0, 1_000_000_000 - seconds))
    ages = {match.path: match.age_days for match in memory.find("needle").matches}
    assert ages == {"new.md": 0, "fresh.md": 0, "old.md": 1, "older.md": 400}


def test_a_prefix_matches_whole_segments(memory: Memory) -> None:
    for path in ("a/b/x.md", "a/bc/x.md", "a/b.md", "ab/x.md", "a/b-c.md", "a/b/c/y.md"):
        memory.put(path, "needle")
    assert memory.found("needle", prefix="a/b") == ["a/b/c/y.md", "a/b/x.md"]
    assert memory.found("needle", prefix="a/b/") == ["a/b/c/y.md", "a/b/x.md"]
    assert memory.found("needle", prefix="a/b.md") == ["a/b.md"]
    assert memory.found("needle", prefix="a/missing") == []
    assert memory.found("needle", prefix="missing.md") == []
    assert len(memory.found("needle")) == 6


@pytest.mark.parametrize(
    ("query", "limit", "refused"),
    [
        ("x" * 512, 1, None),
        ("\u8bb0" * 171, 1, "query_bytes"),
        ("x" * 513, 1, "query_bytes"),
        (" ".join("abcdefghijklmnop"), 1, None),
        (" ".join("abcdefghijklmnopq"), 1, "query_terms"),
        ("a " * 17, 1, "query_terms"),
        ("a", 20, None),
        ("a", 21, "search_results"),
    ],
)
def test_a_query_is_taken_at_its_limits_and_refused_one_over(
    memory: Memory, query: str, limit: int, refused: str | None
) -> None:
    if refused is None:
        memory.find(query, limit=limit)
        return
    with pytest.raises(LimitExceeded) as exceeded:
        memory.find(query, limit=limit)
    fields = exceeded.value.fields
    assert fields["limit"] == refused
    assert isinstance(fields["size"], int)
    assert isinstance(fields["maximum"], int)
    assert fields["size"] > fields["maximum"]


@pytest.mark.parametrize("query", ["", "   ", "\u3000\n", "\ud800"])
def test_a_query_without_a_term_is_refused(memory: Memory, query: str) -> None:
    with pytest.raises(InvalidRequest):
        memory.find(query)
    with pytest.raises(InvalidRequest):
        memory.find("x", limit=-1)
    with pytest.raises(InvalidRequest):
        memory.find("x", cursor="\ud800")


def test_five_results_come_by_default_and_the_rest_is_said_to_be_left_out(memory: Memory) -> None:
    for number in range(6):
        memory.put(f"{number}.md", "needle")
    answer = memory.find("needle", limit=0)
    assert [match.path for match in answer.matches] == [f"{number}.md" for number in range(5)]
    assert answer.truncated
    assert not answer.incomplete
    assert not memory.find("needle", limit=6).truncated


def test_the_answer_as_sent_stays_within_8_kib_and_says_what_it_left_out(memory: Memory) -> None:
    folder = '"' * 250
    for number in range(20):
        memory.offline(f"{folder}/{folder}/{folder}/{number:02}.md", '"needle\\' * 2000)
    answer = memory.find("needle", limit=20)
    assert 0 < len(answer.matches) < 20
    assert answer.truncated
    assert len(encode(answer)) <= 8192
    assert json.loads(encode(answer))["matches"][0]["path"].startswith(folder)
    short = open_memory(memory.root.parent / "short")
    for number in range(20):
        short.put(f"{number:02}.md", "needle in a line of ordinary length, as notes have\n")
    answer = short.find("needle", limit=20)
    assert len(answer.matches) == 20
    assert not answer.truncated


word = st.sampled_from(
    [
        "ab",
        "AB",
        "abc",
        "b",
        "\u8bb0",
        "\u8bb0\u5fc6",
        "\u00e9",
        "\u00c9",
        "x.",
        "?",
        "ca",
        "\U0001f600",
    ]
)
line = st.lists(word, max_size=5).map(" ".join)
document = st.lists(line, max_size=4).map("\n".join)
path = st.sampled_from(["a.md", "ab/c.md", "ab/\u8bb0.md", "z/abc.md", "b-c.md"])


def naive(texts: dict[str, str], query: str) -> list[tuple[str, int]]:
    """Return paths and lines as the design's words say, without a thought for speed."""

    def fold(text: str) -> str:
        return "".join(c.lower() if c.isascii() else c for c in text)

    terms = []
    for raw in query.split():
        term = fold(raw.strip(".?") or raw)
        if term not in terms:
            terms.append(term)
    hits = {
        path: {term for term in terms if term in fold(text) or term in fold(path)}
        for path, text in texts.items()
    }
    holders = {term: sum(term in found for found in hits.values()) for term in terms}
    rows = []
    for path, found in hits.items():
        if not found:
            continue
        lines = texts[path].split("\n")
        titles = [entry for entry in lines if re.match("# ", entry)][:1]
        headed = {term for term in found if term in fold(path) or term in fold("".join(titles))}
        counts = [sum(term in fold(entry) for term in terms) for entry in lines]
        number = counts.index(max(counts)) + 1
        rarity = sum(1 / holders[term] for term in terms if term in found)
        rows.append(((-len(found), -len(headed), -rarity, path), number))
    return [(key[3], number) for key, number in sorted(rows)]


@settings(max_examples=150)
@given(
    st.dictionaries(path, st.one_of(document, document.map("# ".__add__)), max_size=5),
    st.lists(word, min_size=1, max_size=6).map(" ".join),
)
def test_search_agrees_with_a_naive_model(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str], query: str
) -> None:
    memory = open_memory(tmp_path_factory.mktemp("s"))
    for name, text in texts.items():
        memory.offline(name, text)
    answer = memory.find(query)
    assert [(match.path, match.line) for match in answer.matches] == naive(texts, query)
    assert answer.scanned_files == len(texts)


def test_the_best_line_of_an_adversarial_file_is_bounded_by_the_clock() -> None:
    text = b"a\nb\n" * 200_000
    asked = 0

    def late() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert best_line(text, (b"a", b"b"), late) == (1, b"a")
    assert asked == 4
    assert best_line(b"a\nb\nab\n", (b"a", b"b")) == (3, b"ab")
