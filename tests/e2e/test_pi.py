"""Pi: what really reaches the model, in each pinned version."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Call, Say
from fixtures.pinned import PI_VERSIONS
from fixtures.stages import occurrences, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", PI_VERSIONS)]

PROTOCOL = render("cli").text
OWN = "Answer in verse."
MERGED = f"{OWN}\n\n{PROTOCOL}"


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "pi", version) as made:
        yield made


def assert_bound(turn: Turn, text: str = MERGED) -> None:
    assert occurrences(turn, text) == occurrences(turn, PROTOCOL) == 1
    assert text in turn.system


def append_file(stage: Stage) -> Path:
    path = stage.home / ".pi" / "agent" / "APPEND_SYSTEM.md"
    path.write_text(OWN)
    return path


def test_the_protocol_follows_the_users_own_append_file_over_resume_and_fork(
    stage: Stage, version: str
) -> None:
    path = append_file(stage)
    before = stage.print_of("home/.pi/agent/models.json", "home/.pi/agent/APPEND_SYSTEM.md")
    report, first = stage.turn()
    assert_bound(first)
    bare = stage.bare("-p", "hello")
    assert (
        first.system.replace(MERGED.rstrip("\n"), OWN)
        == bare.system.replace(MERGED.rstrip("\n"), OWN)
        or first.system.replace(MERGED, OWN) == bare.system
    )
    assert report.agent_version == version
    assert report.warnings == ()
    assert stage.print_of("home/.pi/agent/models.json", "home/.pi/agent/APPEND_SYSTEM.md") == before
    path.write_text("changed since")
    resumed, second = stage.turn(session=report.session)
    assert_bound(second)
    assert second.system == first.system
    assert resumed.native_id == report.native_id
    assert len(second.user) > 1
    forked, third = stage.turn(session=report.session, fork=True)
    assert third.system == first.system
    assert len(third.user) > len(first.user)
    assert forked.native_id not in {None, report.native_id}


def test_print_mode_and_its_resume_keep_the_text_and_the_conversation(
    stage: Stage, version: str
) -> None:
    append_file(stage)
    node = ("--executable", str(stage.executable))
    done, turn = stage.amux("launch", "pi", *node, "--json", "--", *stage.options, "-p", "one")
    assert done.stdout.strip() == "ok"
    assert turn is not None
    assert_bound(turn)
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    report = events[0]["report"]
    assert (report["agent_version"], report["binding"]) == (version, "global")
    done, again = stage.amux("resume", report["session"], *node, "--", *stage.options, "-p", "two")
    assert done.returncode == 0, done.stderr
    assert again is not None
    assert again.system == turn.system
    assert again.user[-2:] == ("one", "two")


def searching_twice(turn: Turn) -> Answer:
    """Reach memory by the name on PATH, and by the variable."""
    bash = turn.tool("bash")
    assert bash is not None
    if len(turn.results) == 0:
        return Call(bash, {"command": "amux memory search tea"})
    if len(turn.results) == 1:
        return Call(bash, {"command": '"$AMUX_CLI" memory search tea; echo; amux --version'})
    return Say("done")


@pytest.mark.parametrize("shadowed", [False, True], ids=["plain", "shadowed"])
def test_memory_is_reached_also_where_the_agents_own_folder_shadows_the_command(
    tmp_path: Path, shared_host: Host, version: str, *, shadowed: bool
) -> None:
    with staged(tmp_path, shared_host, "pi", version, searching_twice) as stage:
        if shadowed:
            shadow = stage.home / ".pi" / "agent" / "bin" / "amux"
            shadow.parent.mkdir(parents=True, exist_ok=True)
            shadow.write_text(f"#!/bin/sh\necho {shlex.quote('THE OTHER')}\n")
            shadow.chmod(0o755)
        report, turn = stage.turn()
    by_name, by_variable = (one.text for one in turn.results)
    assert json.loads(by_variable.splitlines()[0])["matches"] == []
    assert (turn.system.count('`"$AMUX_CLI" memory search') > 0) is shadowed
    assert ("THE OTHER" in by_name) is shadowed
    assert any("another `amux`" in text for text in report.warnings) is shadowed
    if not shadowed:
        assert json.loads(by_name)["matches"] == []


EXTENSION = """\
export default function (pi) {
  pi.registerCommand("recall", { description: "remembers", handler: async () => {} });
}
"""


def test_extensions_that_are_loaded_are_listed_in_the_report(stage: Stage, version: str) -> None:
    del version
    path = stage.home / ".pi" / "agent" / "extensions" / "recall.ts"
    path.parent.mkdir(parents=True)
    path.write_text(EXTENSION)
    report, turn = stage.turn()
    assert_bound(turn, PROTOCOL)
    (seen,) = [one for one in report.controls if one.source == "get_commands"]
    assert f"{path} (recall)" in seen.observed
    assert any(str(path) in text for text in report.warnings)


def test_a_native_conversation_without_a_record_is_resumed_untouched_and_reported(
    stage: Stage, version: str
) -> None:
    del version
    stage.bare("-p", "one")
    report, turn = stage.turn("--continue")
    assert (report.binding, report.resumed) == (None, True)
    assert any("no record of amux" in text for text in report.warnings)
    assert occurrences(turn, PROTOCOL) == 0
    assert turn.user[0] == "one"


def test_a_conversation_of_amuxs_is_bound_again_however_pi_is_told_to_continue_it(
    stage: Stage, version: str
) -> None:
    append_file(stage)
    report, first = stage.turn()
    record = stage.record(report.native_id)
    (file,) = (stage.home / ".pi" / "agent" / "sessions").rglob("*.jsonl")
    for words in (("--continue",), ("--session", str(file)), ("--session", record.native_id[:-4])):
        again, turn = stage.turn(*words)
        assert (again.session, again.binding) == (report.session, "global"), words
        assert_bound(turn)
        assert turn.user[0] == first.user[0]
    node = ("--executable", str(stage.executable))
    done, printed = stage.amux("launch", "pi", *node, "--", *stage.options, "-c", "-p", "last")
    assert done.returncode == 0, done.stderr
    assert "no record" not in done.stderr
    assert printed is not None
    assert_bound(printed)
    assert (printed.user[0], printed.user[-1]) == (first.user[0], "last")
    forked, turn = stage.turn("--fork", str(file))
    assert (forked.session != report.session, forked.binding) == (True, "global")
    assert_bound(turn)
    del version


def test_where_there_is_nothing_to_continue_a_new_conversation_is_bound_and_continued(
    stage: Stage, version: str
) -> None:
    del version
    node = ("--executable", str(stage.executable))
    seen = []
    for prompt in ("one", "two"):
        done, turn = stage.amux("launch", "pi", *node, "--", *stage.options, "-c", "-p", prompt)
        assert done.returncode == 0, done.stderr
        assert "no record" not in done.stderr
        assert turn is not None
        assert_bound(turn, PROTOCOL)
        seen.append(turn.user)
    assert seen == [("one",), ("one", "two")]


REPLACING = """\
export default function (pi) {
  pi.on("before_agent_start", async () => ({ systemPrompt: "I AM REPLACED" }));
}
"""
INJECTING = """\
export default function (pi) {
  pi.on("before_agent_start", async () => ({
    message: { customType: "memkit", content: "REMEMBERED TEXT", display: false },
  }));
}
"""


@pytest.mark.parametrize("place", ["agent folder", "project settings"])
def test_an_extension_that_takes_the_protocol_out_is_warned_of_in_rpc_mode_too(
    stage: Stage, version: str, place: str
) -> None:
    del version
    code = stage.home / ".pi" / "agent" / "extensions" / "kit.ts"
    if place == "project settings":
        code = stage.cwd / "kit.ts"
        settings = stage.cwd / ".pi" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"extensions": [str(code)]}))
        trust = {str(stage.cwd.resolve()): True}
        (stage.home / ".pi" / "agent" / "trust.json").write_text(json.dumps(trust))
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_text(REPLACING)
    report, turn = stage.turn()
    assert occurrences(turn, PROTOCOL) == 0
    (warning,) = report.warnings
    assert str(code) in warning
    assert "take the protocol out of the prompt" in warning


def test_text_that_an_extension_put_in_is_seen_in_the_session_and_the_prompt_as_composed(
    stage: Stage, version: str
) -> None:
    code = stage.home / ".pi" / "agent" / "extensions" / "kit.ts"
    code.parent.mkdir(parents=True)
    code.write_text(INJECTING)
    report, turn = stage.turn()
    assert occurrences(turn, "REMEMBERED TEXT") == 1
    seen = {one.control: one.observed for one in stage.record(report.native_id).seen}
    expected = {"text of extensions": "memkit (1)"}
    if version == "1.6.0":  # before 0.87 Pi keeps no prompt in its session
        expected["protocol"] = "once"
    assert seen == expected


def test_a_link_to_a_trusted_project_has_its_append_file(
    stage: Stage, version: str, tmp_path: Path
) -> None:
    del version
    (stage.cwd / ".pi").mkdir()
    (stage.cwd / ".pi" / "APPEND_SYSTEM.md").write_text(OWN)
    trust = {str(stage.cwd.resolve()): True}
    (stage.home / ".pi" / "agent" / "trust.json").write_text(json.dumps(trust))
    link = tmp_path / "link"
    link.symlink_to(stage.cwd)
    report, turn = stage.turn(cwd=link)
    assert_bound(turn)
    assert report.cwd == str(stage.cwd.resolve())
