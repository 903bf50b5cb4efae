"""Which arguments of each agent open a conversation, and which only print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amux.providers.claude import ClaudeProvider
from amux.providers.codex import CodexProvider
from amux.providers.generic import GenericProvider
from amux.providers.pi import PiProvider

if TYPE_CHECKING:
    from amux.providers.base import Provider

AGENTS: dict[str, Provider] = {
    one.name: one for one in (ClaudeProvider(), CodexProvider(), PiProvider(), GenericProvider())
}


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("claude", "--help"),
        ("claude", "-p --version hello"),
        ("claude", "-pv"),
        ("claude", "--model opus -h"),
        ("codex", "--help"),
        ("codex", "-V"),
        ("codex", "exec --help"),
        ("codex", "exec resume -h"),
        ("codex", "exec hello -V"),
        ("codex", "exec help"),
        ("pi", "-h"),
        ("pi", "-p hello --version"),
        ("pi", "--list-models"),
        ("pi", "--export kept.jsonl"),
    ],
)
def test_what_only_prints_opens_no_conversation(agent: str, line: str) -> None:
    assert not AGENTS[agent].opens_conversation(tuple(line.split()))


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("claude", ""),
        ("claude", "-p -- --help"),
        ("claude", "--append-system-prompt --help -p hello"),
        ("claude", "help"),
        ("codex", ""),
        ("codex", "exec -- --help"),
        ("codex", "-c -h hello"),
        ("codex", "exec say help"),
        ("pi", ""),
        ("pi", "--append-system-prompt --help"),
        ("pi", "-- --help"),
        ("generic", "--help"),
    ],
)
def test_help_that_is_a_value_or_a_prompt_opens_one(agent: str, line: str) -> None:
    assert AGENTS[agent].opens_conversation(tuple(line.split()))
