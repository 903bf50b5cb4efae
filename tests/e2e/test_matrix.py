"""A cell of the matrix on the pinned agents: one stage shows native memory and its absence."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.providers.base import Mode
from fixtures.hosts import running_host
from fixtures.matrix.cells import Cell
from fixtures.matrix.running import run, way_of
from fixtures.matrix.verdict import Outcome, judge, shows_native
from fixtures.pinned import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host

pytestmark = pytest.mark.agents


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """Give a Runtime below a short path: a server's socket is in it."""
    with (
        tempfile.TemporaryDirectory(prefix="ax") as folder,
        running_host(Path(folder)) as made,
    ):
        yield made


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("agent", "version", "way"),
    [
        ("codex", "0.171.0", "user-file"),
        ("codex", "0.171.0", "sub-agent-text"),
        ("claude", "2.1.332", "user-settings"),
    ],
)
def test_a_way_shows_native_memory_without_amux_and_what_amux_makes_of_it(
    host: Host, agent: str, version: str, way: str, mode: Mode
) -> None:
    real, known = pinned(agent, version), way_of(agent, way)
    control = run(Cell(agent=agent, version=version, way=way, mode=None), real, host)
    assert shows_native(control), control
    seen = run(Cell(agent=agent, version=version, way=way, mode=mode), real, host)
    verdict = judge(known, seen, control)
    assert verdict.outcome is Outcome.OK, verdict.detail
    claimed = judge(known, replace(seen, warnings=(), sent=control.sent), control)
    assert claimed.outcome is Outcome.FALSE_OFF
