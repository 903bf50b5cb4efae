"""Which cells are played, in which order, and what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.providers.base import Mode
from fixtures.matrix.cells import Cell, Seen, Sent
from fixtures.matrix.plan import Choice, groups
from fixtures.matrix.releases import listed
from fixtures.matrix.results import Result, Results
from fixtures.matrix.table import render

if TYPE_CHECKING:
    from pathlib import Path

CELL = Cell(agent="claude", version="2.1.332", way="user-settings", mode=Mode.STREAM)
CONTROL = Cell(agent="claude", version="2.1.332", way="user-settings", mode=None)
NATIVE = Sent(who="main", native=("the memory's text",), protocol=0, tools=0)


def test_the_list_holds_enough_versions_of_each_agent_old_to_new() -> None:
    found = listed()
    numbers = {agent: [one.number for one in found if one.agent == agent] for agent in LEAST}
    assert {agent: len(mine) >= LEAST[agent] for agent, mine in numbers.items()} == dict.fromkeys(
        LEAST, True
    )
    assert all(mine == sorted(set(mine)) for mine in numbers.values())


LEAST = {"codex": 12, "claude": 12, "pi": 6}


def test_a_way_is_played_over_all_versions_the_pinned_first_and_each_run_without_amux_last() -> (
    None
):
    choice = Choice(agents=("claude",), versions=("2.1.197", "2.1.300", "2.1.332"), part="settings")
    found = list(groups([one for one in listed() if choice.takes(one)], choice))
    assert [group[0].version for group in found[:3]] == ["2.1.332", "2.1.197", "2.1.300"]
    assert len({cell.way for group in found[:3] for cell in group}) == 1
    modes = (Mode.STREAM, Mode.PASSTHROUGH, Mode.TERMINAL, None)
    assert tuple(cell.mode for cell in found[0]) == modes
    assert all("settings" in cell.way for group in found for cell in group)


def test_a_way_is_left_out_of_versions_that_do_not_know_it() -> None:
    choice = Choice(agents=("codex",), part="profile-of-the-file")
    found = {group[0].version for group in groups(listed(), choice)}
    assert "0.124.0" in found
    assert "0.134.0" not in found


def test_results_outlive_the_command_and_the_later_of_two_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    kept = Results(path)
    for seen in (Seen(broken="it died"), Seen(tools="mcp", sent=(NATIVE,), warnings=("a",))):
        kept.add(Result(cell=CELL, seen=seen, revision="1", when="2026-01-01T00:00:00+00:00"))
    again = Results(path)
    assert again.by_key == kept.by_key
    assert again.seen(CELL) == Seen(tools="mcp", sent=(NATIVE,), warnings=("a",))


def test_the_page_names_each_difference_with_what_was_sent(tmp_path: Path) -> None:
    kept = Results(tmp_path / "results.jsonl")
    for cell, tools in ((CONTROL, ""), (CELL, "mcp")):
        seen = Seen(tools=tools, sent=(NATIVE,))
        kept.add(Result(cell=cell, seen=seen, revision="abc", when="2026-01-01T00:00:00+00:00"))
    page = render(kept)
    assert "| user-settings | **FALSE OFF** |" in page
    assert f"| {CELL.key} | FALSE OFF | main: the memory's text |" in page
    assert "| days | 2026-01-01 |" in page
    assert "abc (1)" in page
