"""The one reader of version numbers, and what it says of those that a launch cannot take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amux import providers
from amux.providers.codex.version import SUPPORT as CODEX
from amux.providers.errors import UnknownVersion, UnsupportedVersion
from amux.providers.release import SOURCE, is_plain, leading_version, number, version_in


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("codex-cli 0.153.4\n", "0.153.4"),
        ("2.1.332 (Claude Code)", "2.1.332"),
        ("v1.0.0-beta.2", "1.0.0-beta.2"),
        ("1.2.3+build.7, x", "1.2.3+build.7"),
        ("no version here", ""),
        ("WARNING: x\nagent 3.4", "3.4"),
    ],
)
def test_the_version_in_a_text_is_its_first_dotted_number(printed: str, version: str) -> None:
    assert version_in(printed) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.171.0 (Debian 13)", "0.171.0"),
        ("0.171.0-alpha.2 x", "0.171.0-alpha.2"),
        ("amux 0.171.0", ""),
        ("1.2", ""),
    ],
)
def test_a_leading_version_is_at_the_very_beginning(text: str, version: str) -> None:
    assert leading_version(text) == version


def test_versions_are_ordered_by_their_numbers_and_not_their_letters() -> None:
    assert number("2.1.99") < number("2.1.197") < number("2.10.0-beta") < number("10.0.0")


def test_a_build_from_source_counts_as_the_newest() -> None:
    assert number("0.0.0") == SOURCE > number("999.999.999")


@pytest.mark.parametrize("text", ["", "1.2", "v1.2.3", "latest"])
def test_what_does_not_begin_with_three_numbers_is_not_a_version(text: str) -> None:
    with pytest.raises(UnknownVersion, match=f"^{text!r} is not a version"):
        number(text)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("2.1.332", True), ("2.1.332-beta", False), ("v2.1.332", False), ("2.1", False)],
)
def test_a_plain_version_has_nothing_around_it(name: str, *, plain: bool) -> None:
    assert is_plain(name) is plain


def test_a_release_that_is_too_old_is_refused_with_the_first_that_is_not() -> None:
    with pytest.raises(
        UnsupportedVersion,
        match=r"Codex 0\.120\.9 is too old for memory: .*; 0\.121\.0 or newer is needed",
    ):
        CODEX.require("0.120.9")
    CODEX.require("0.121.0")


def test_what_another_program_printed_is_quoted() -> None:
    assert CODEX.read("WARNING: proxy\ncodex-cli 0.171.0-alpha.1\n") == "0.171.0-alpha.1"
    with pytest.raises(UnknownVersion, match="printed 'hello', which is not Codex's version"):
        CODEX.read("hello\n")


def test_no_other_module_reads_version_numbers() -> None:
    """Look for patterns of two dotted numbers, and for what turns their parts into numbers."""
    readers = re.compile(r"\\d[+*]\)?\\?\.\(?\\d|int\(part\) for part in .*split\(\"\.\"\)")
    top = Path(providers.__file__).resolve().parent.parent
    found = {
        file.relative_to(top).as_posix()
        for room in ("providers", "launcher", "materializer", "hub", "fixtures")
        for file in (top / room).rglob("*.py")
        if "node_modules" not in file.parts and readers.search(file.read_text())
    }
    assert found == {"providers/release.py"}
