"""A HOME that is written in another form is the same home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from fixtures.hosts import running_host
from fixtures.stages import occurrences, staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.agents


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("codex", "0.153.4"),
        ("codex", "0.171.0"),
        ("claude", "2.1.332"),
        ("pi", "1.6.0"),
    ],
)
def test_a_launch_is_bound_whatever_the_form_of_home(
    tmp_path: Path, agent: str, version: str
) -> None:
    protocol = render("cli" if agent == "pi" else "mcp").text
    with running_host(tmp_path / "host") as host, staged(tmp_path, host, agent, version) as stage:
        home = stage.environment["HOME"]
        others = {name: value for name, value in stage.environment.items() if "HOME" not in name}
        for form in (f"{home}/", f"/{home}", home.replace("/home", "//home"), f"{home}/../home"):
            report, turn = stage.turn(environment={**others, "HOME": form})
            assert report.binding == "global", form
            assert occurrences(turn, protocol) == 1, form
