"""An agent that dies of an option of amux's own is refused by that option's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amux.providers.base import Facts, Mode, Tools
from amux.providers.claude import ClaudeProvider
from amux.providers.codex import version as codex
from amux.providers.errors import UnsupportedVersion
from amux.providers.pi import PiProvider
from amux.providers.release import SOURCE, number
from fixtures.requests import grant, request


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("error: unknown option '--system-prompt-snapshot=off'", "--system-prompt-snapshot"),
        ("Error: Unknown option: --append-system-prompt", "--append-system-prompt"),
        ("error: unknown option '--theirs'", ""),
        ("error: unknown option '--also=x'", ""),
        ("panic: out of memory", ""),
    ],
)
def test_only_an_option_of_amuxs_own_is_named(said: str, named: str) -> None:
    asked = request("--theirs", "--also=x")
    assert ClaudeProvider().unknown_flag(asked, said) == named
    assert PiProvider().unknown_flag(asked, said) == named


def test_a_plan_without_the_option_is_refused_by_its_name() -> None:
    for provider, tools, version in (
        (ClaudeProvider(), Tools.MCP, "2.1.332"),
        (PiProvider(), Tools.CLI, "1.6.0"),
    ):
        asked = replace(request(version=version, mode=Mode.STREAM), unknown=frozenset({"--ours"}))
        with pytest.raises(UnsupportedVersion, match=f"{version} does not know --ours, which amux"):
            provider.plan(asked, grant(tools), Facts())


def test_a_build_from_source_is_launched_as_the_newest_with_a_warning() -> None:
    assert number("0.0.0") == SOURCE
    assert codex.unproven_warnings("0.0.0") != ()
    plan = ClaudeProvider().plan(request(version="0.0.0"), grant(), Facts())
    assert "--system-prompt-snapshot=off" in plan.argv
    assert any("0.0.0 (built from source) is outside" in text for text in plan.warnings)  # type: ignore[union-attr]
