"""What a launcher makes of what a run's MCP server tells."""

from __future__ import annotations

import contextlib
import json
import queue
from typing import TYPE_CHECKING, Any

import pytest

from amux.launcher.evidence.mcp_reports import (
    MESSAGES,
    NEVER_LISTED,
    NEVER_STARTED,
    Asked,
    Witness,
    open_witness,
)
from amux.materializer import runs
from amux.materializer.values import PlannedFile
from fixtures.waiting import SECONDS
from tests.materializer.test_witness import send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.materializer.values import RunPaths

CLIENT = {"name": "claude-code", "version": "2.1.332"}
LISTED = {"schema": 1, "event": "tools/list", "client": CLIENT, "tools": ["a", "b"]}


@pytest.fixture(name="paths")
def _paths(tmp_path: Path) -> Iterator[RunPaths]:
    paths = runs.allocate(tmp_path / "runs")
    runs.apply(paths, (PlannedFile(name="connection.json", content=b"{}"),), None)
    yield paths
    runs.remove(paths)


@pytest.fixture(name="witness")
def _witness(paths: RunPaths) -> Iterator[Witness]:
    witness = open_witness(paths, None)
    assert witness is not None
    yield witness
    witness.close()


def tell(paths: RunPaths, message: Any) -> None:  # noqa: ANN401  # anything that JSON can say
    send(paths.witness, message if isinstance(message, bytes) else json.dumps(message).encode())


def test_the_list_with_its_tools_and_who_asked_is_seen(paths: RunPaths, witness: Witness) -> None:
    tell(paths, {"schema": 1, "event": "initialize", "client": CLIENT})
    tell(paths, {**LISTED, "client": {}})
    asked = witness.wait(SECONDS)
    (seen,) = asked.sightings()
    assert (seen.control, seen.observed, seen.contradicts) == (
        "memory tools",
        "2 listed to claude-code 2.1.332",
        "",
    )
    assert seen.source == "tools/list of this run's MCP server"


def test_a_server_that_nobody_asked_contradicts_the_launch(
    paths: RunPaths, witness: Witness
) -> None:
    (never,) = witness.asked.sightings()
    assert (never.observed, never.contradicts) == ("not asked for", NEVER_STARTED)
    tell(paths, {"schema": 1, "event": "initialize", "client": CLIENT})
    (unlisted,) = witness.close().sightings()
    assert (unlisted.observed, unlisted.contradicts) == ("not listed", NEVER_LISTED)


def test_what_is_told_later_is_heard_at_once_and_once(paths: RunPaths, witness: Witness) -> None:
    heard: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    assert witness.tell(heard.put) == Asked()
    tell(paths, LISTED)
    tell(paths, LISTED)
    tell(paths, {**LISTED, "event": "tools/call", "tools": ["b"]})
    assert heard.get(timeout=SECONDS).tools == ("a", "b")
    called = heard.get(timeout=SECONDS)
    assert [(one.control, one.observed) for one in called.sightings()][1] == (
        "memory tools called",
        "b",
    )
    witness.close()
    assert heard.empty()


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\xff\xfe",
        b"[" * 5000,
        b"7",
        [],
        {},
        {**LISTED, "schema": 2},
        {"event": "tools/list"},
        {**LISTED, "event": "tools/other"},
        {**LISTED, "event": ["tools/list"]},
    ],
)
def test_a_message_of_another_shape_says_nothing(
    paths: RunPaths, witness: Witness, junk: object
) -> None:
    tell(paths, junk)
    assert witness.close() == Asked()


@pytest.mark.parametrize("tools", [None, 7, "ab", [], [1, None, ""]])
def test_a_list_without_a_name_of_a_tool_is_none(
    paths: RunPaths, witness: Witness, tools: object
) -> None:
    tell(paths, {**LISTED, "client": [], "tools": tools})
    (seen,) = witness.close().sightings()
    assert seen.observed == "not listed"


def test_names_are_shown_on_one_line_without_control_characters(
    paths: RunPaths, witness: Witness
) -> None:
    tell(paths, {**LISTED, "client": {"name": "a\x1b[2J\nb", "version": "\u202e1"}})
    (seen,) = witness.close().sightings()
    assert seen.observed == "2 listed to a[2Jb 1"


def test_a_flood_of_messages_is_heard_to_its_bound_and_then_no_more(
    paths: RunPaths, witness: Witness
) -> None:
    sent = 0
    with contextlib.suppress(ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        while sent < 100 * MESSAGES:
            tell(paths, {"schema": 1})
            sent += 1
    assert MESSAGES <= sent < 100 * MESSAGES
    assert witness.close() == Asked()
