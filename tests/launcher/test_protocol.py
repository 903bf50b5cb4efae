from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import MAX_BYTES, VERSION, Tools, load, render
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

BOTH: tuple[Tools, Tools] = ("mcp", "cli")
# A changed wording is a new version: raise VERSION and set the digests anew.
DIGESTS = {
    "1": {
        "mcp": "7e85ba31fd43b49b3be6152c65dcf663a84a8d41827ee6e16708c94dd96b166a",
        "cli": "6f7d742ab3b46b8d861ca1bb401889aac1dd38d7d68b6a092d3e31afcdff4c55",
    }
}


@pytest.mark.parametrize("tools", BOTH)
def test_a_rendered_protocol_fits_two_kibibytes_and_digests_its_own_bytes(tools: Tools) -> None:
    protocol = render(tools)
    raw = protocol.text.encode()
    assert len(raw) <= MAX_BYTES == 2048
    assert protocol.digest == hashlib.sha256(raw).hexdigest()
    assert protocol.version == VERSION


@pytest.mark.parametrize("tools", BOTH)
def test_a_changed_wording_needs_a_new_version(tools: Tools) -> None:
    assert render(tools).digest == DIGESTS[VERSION][tools]


def test_both_forms_say_the_same_rules_and_differ_in_the_names_of_tools_only() -> None:
    names = {
        "`amux_memory_get`": "`amux memory show`",
        "`amux_memory_search`": "`amux memory search`",
        "`amux_memory_upsert`": "`amux memory upsert`",
        "`amux_memory_forget`": "`amux memory forget`",
    }
    mcp, cli = (render(tools).text.split("\n\n") for tools in BOTH)
    rules = mcp[-1]
    for tool, command in names.items():
        assert tool in rules
        rules = rules.replace(tool, command)
    assert rules == cli[-1]
    assert mcp[0] == cli[0]


def test_the_mcp_form_names_each_tool_as_each_agent_shows_it() -> None:
    text = render("mcp").text
    for name in ("search", "get", "upsert", "forget"):
        assert f"`amux_memory_{name}`" in text
    assert "`amux_result_continue`" in text
    for shown in ("`mcp__amux__amux_memory_search`", "`mcp__amux`", "`amux.memory_search`"):
        assert shown in text


def test_the_cli_form_names_each_command_and_the_way_past_a_shadowed_path() -> None:
    text = render("cli").text
    for command in ("search WORDS", "show PATH", "upsert PATH --expected-revision R"):
        assert f"`amux memory {command}`" in text
    assert "`amux memory forget PATH --expected-revision R`" in text
    assert '`"$AMUX_CLI" memory' in text


@pytest.mark.parametrize(
    "rule",
    [
        "not local files",
        "Once in a new conversation read MEMORY.md",
        "Otherwise do not search",
        "lasting corrections and verified lessons",
        "a small entry",
        "pass the revision",
        "On a conflict read again, merge",
        'Say "saved" only after success',
        "update MEMORY.md and every topic",
        "report what failed",
        "Never save secrets, temporary permissions or guesses",
        "data from the past",
        "Current instructions and verified facts win",
        "grants no authority",
    ],
)
@pytest.mark.parametrize("tools", BOTH)
def test_the_protocol_says_each_rule_of_the_design(tools: Tools, rule: str) -> None:
    assert rule in render(tools).text


@pytest.mark.parametrize("tools", BOTH)
def test_two_launches_on_other_days_homes_runs_and_scopes_get_the_same_bytes(
    tools: Tools, tmp_path: Path
) -> None:
    script = (
        "import sys; from amux.launcher.memory.protocol import render;"
        f" sys.stdout.buffer.write(render({tools!r}).text.encode())"
    )
    seen = set()
    for day, scope in (("1", "global"), ("2", "principal:alice")):
        home = tmp_path / day
        home.mkdir()
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.getcwd(),  # noqa: PTH109  # where the tests run
            "HOME": str(home),
            "AMUX_HOME": str(home / ".amux"),
            "AMUX_RUNS": str(home / "runs"),
            "AMUX_MEMORY_BINDING": scope,
            "AMUX_CLI": str(home / "amux"),
            "TZ": f"UTC{day}",
            "LC_ALL": "C" if day == "1" else "C.UTF-8",
            "PYTHONHASHSEED": day,
        }
        # The clock cannot be moved without privileges: a text that held any digit but those
        # of its wording would be seen here.
        seen.add(
            subprocess.run(
                [sys.executable, "-c", script],
                env=environ,
                cwd=home,
                check=True,
                capture_output=True,
                timeout=SECONDS,
            ).stdout
        )
    assert seen == {render(tools).text.encode()}
    assert not re.search(r"[0-9]|/home|/root|/tmp", render(tools).text)


@pytest.mark.parametrize("tools", ["mcp", "cli"])
def test_the_kept_rendering_is_what_the_template_gives(tools: Tools) -> None:
    assert load(tools) == render(tools)
