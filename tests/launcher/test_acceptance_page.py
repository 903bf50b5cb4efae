"""The acceptance test that docs/probe.md gives to a third party's provider."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from amux.launcher import supervisor as supervision
from amux.launcher.errors import LaunchError
from amux.launcher.probe.acceptance import probe_turns
from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.turns import Say
from amux.launcher.request import LaunchRequest
from amux.launcher.supervisor import Session, Supervisor
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from amux.launcher.host import Host

PAGE = Path(__file__).parents[2] / "docs" / "probe.md"


@pytest.mark.parametrize(("copies", "accepted"), [(1, True), (2, False)])
def test_the_pages_test_accepts_a_protocol_that_arrives_once(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int, *, accepted: bool
) -> None:
    monkeypatch.setattr(
        supervision, "this_host", lambda _: replace(host, providers=scripted_registry())
    )
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  # our own page
    request = LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
    )
    with ScriptedModel(lambda _: Say("ok")) as model, Supervisor(environ=host.environ) as held:

        def take_turn(session: Session) -> None:
            """Ask the model as an agent would that keeps to its instructions."""
            body = {
                "instructions": held.record(session.id).protocol * copies,
                "input": [],
                "tools": [{"type": "function", "name": "shell"}],
            }
            asked = Request(  # noqa: S310  # our own server
                f"{model.url}/v1/responses",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urlopen(asked, timeout=SECONDS) as answer:  # noqa: S310  # same
                answer.read()

        if accepted:
            names["accept"](held, model, request, take_turn)
            return
        with pytest.raises(AssertionError, match="once"):
            names["accept"](held, model, request, take_turn)


def test_a_probe_of_an_agent_that_it_cannot_stage_says_what_to_do() -> None:
    with pytest.raises(LaunchError, match=r"how generic is pointed at .* docs/probe\.md"):
        probe_turns("generic", None)
