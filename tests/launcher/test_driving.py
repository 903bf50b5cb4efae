"""A program that drives an agent: its lines are held, the agent's come through and are seen."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from amux.launcher.channel.stdio_relay import Driving
from amux.providers.errors import BadArguments


class Program:
    """A driven agent's program: what it hears, and what was seen of the agent."""

    def __init__(self) -> None:
        self.hears, out = os.pipe()
        self.seen: list[dict[str, Any]] = []
        self.out = out
        self.driving = Driving(hold, answer, self.seen.append, out=out)

    def heard(self) -> bytes:
        os.close(self.out)
        with os.fdopen(self.hears, "rb") as pipe:
            return pipe.read()


def hold(message: dict[str, Any]) -> dict[str, Any]:
    if "bad" in message:
        raise BadArguments("that is not held")
    return {**message, "held": True}


def answer(message: dict[str, Any], reason: str) -> dict[str, Any] | None:
    return {"to": message["bad"], "reason": reason} if message["bad"] else None


@pytest.fixture
def program() -> Program:
    return Program()


def test_each_message_goes_on_as_it_was_judged_however_it_is_cut(program: Program) -> None:
    driving = program.driving
    assert driving.typed(b'{"a": 1, "a":') == b""
    assert driving.typed(b' 2}\n\n{"b": 3}') == b'{"a":2,"held":true}\n\n'
    assert driving.typed(b"") == b'{"b":3,"held":true}\n'
    assert program.heard() == b""


@pytest.mark.parametrize(
    "line", [b"[" * 100_000 + b"]" * 100_000, b'{"n":' + b"1" * 5_000 + b"}", b"{not json}"]
)
def test_a_line_that_cannot_be_judged_is_not_passed_on(
    program: Program, line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program.driving.typed(line + b'\n{"a":1}\n') == b'{"a":1,"held":true}\n'
    assert "cannot read as JSON" in capfd.readouterr().err


def test_what_is_refused_is_answered_in_the_agents_place_between_its_lines(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    driving = program.driving
    assert driving.say(b'{"from": "agent"}\n{"half"')
    assert driving.typed(b'{"bad": 7}\n{"bad": 0}\n') == b""
    assert driving.say(b": 1}\nplain words\nrest")
    assert driving.say(b"")
    assert "amux: that is not held" in capfd.readouterr().err
    lines = program.heard().split(b"\n")
    assert json.loads(lines[1]) == {"to": 7, "reason": "that is not held"}
    assert lines[::2] == [b'{"from": "agent"}', b'{"half": 1}', b"rest"]
    assert lines[3] == b"plain words"
    assert program.seen == [{"from": "agent"}, {"half": 1}]


def test_an_agents_output_ends_where_the_program_is_gone(program: Program) -> None:
    os.close(program.hears)
    assert program.driving.say(b"one\n") is False
    os.close(program.out)
