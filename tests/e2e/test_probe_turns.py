"""`amux probe` with model turns: it passes on real agents, and tells what changed."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from click.testing import CliRunner

from amux.launcher.cli.probe import command
from amux.launcher.probe.acceptance import differences
from amux.launcher.probe.subagents import KINDS, Told
from amux.launcher.report import LaunchReport
from amux.providers.base import Evidence, Mode
from fixtures.pinned import pinned


@pytest.mark.agents
@pytest.mark.parametrize(
    ("agent", "version"), [("codex", "0.171.0"), ("claude", "2.1.332"), ("pi", "0.74.2")]
)
def test_a_pinned_agent_passes_with_model_turns(agent: str, version: str) -> None:
    executable = str(pinned(agent, version).executable)
    done = CliRunner().invoke(command, [agent, "--turns", "--executable", executable, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["version"] == version
    seen = {one["subject"]: one["observed"] for one in report["findings"]}
    assert seen["binding"] == "global"
    assert seen["native memory text"] == "absent"
    assert seen["protocol"] == seen["protocol after a resume"] == "once in the request"
    assert seen["protocol after compaction"] == "once in the request"
    assert seen["prefix over a resume"].startswith("byte-identical")
    assert seen["the document in the end"] == "forgotten"
    children = {name: told for name, told in seen.items() if name.startswith("sub-agent ")}
    assert [name for name in children if name.endswith(", terminal")] == [
        f"sub-agent {kind or 'of its own kind'}, terminal" for kind in KINDS.get(agent, ())
    ]
    assert len(children) == 2 * len(KINDS.get(agent, ()))
    assert all(told.startswith("protocol received") for told in children.values())
    assert all(told.endswith("native memory absent") for told in children.values())


def reported(control: str, observed: str) -> LaunchReport:
    return replace(
        LaunchReport(**dict.fromkeys((one.name for one in fields(LaunchReport)), None)),  # type: ignore[arg-type]
        controls=(Evidence(control=control, observed=observed, source="the agent"),),
    )


@pytest.mark.parametrize(
    ("observed", "protocol", "native", "passed"),
    [
        ("appended", True, False, True),
        ("appended", False, False, False),
        ("absent", False, False, True),
        ("absent", True, False, False),
        ("appended", True, True, False),
    ],
)
def test_a_sub_agent_must_be_told_what_the_report_says_and_nothing_of_native_memory(
    *, observed: str, protocol: bool, native: bool, passed: bool
) -> None:
    told = Told(protocol=protocol, tools=True, native=native)
    found = told.finding("Plan", Mode.TERMINAL, reported("protocol in sub-agents", observed))
    assert found.passed is passed
    assert found.subject == "sub-agent Plan, terminal"
    assert told.finding("", Mode.STREAM, reported("auto memory", "off")).passed is (
        protocol and not native
    )


@pytest.mark.agents
def test_an_agent_that_was_not_installed_is_a_finding_not_a_trace() -> None:
    done = CliRunner().invoke(command, ["claude"], env={"PATH": "/nowhere"})
    assert done.exit_code == 1
    assert "FAIL  launch  agent_not_found: no `claude` on PATH" in done.output


def test_an_unknown_agent_is_refused() -> None:
    done = CliRunner().invoke(command, ["nobody"])
    assert done.exit_code == 1
    assert "nobody" in done.output
    assert "Traceback" not in done.output


def body(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # any JSON
    messages = [{"role": "user", "content": "one"}]
    return {"system": "s", "tools": [{"name": "t"}], "messages": messages, **changes}


def test_a_longer_conversation_and_moved_cache_marks_are_no_change() -> None:
    marked = [
        {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}},
    ]
    later = [{"role": "user", "content": marked}, {"role": "assistant", "content": "two"}]
    assert differences(body(), body(messages=later)) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"system": "S"}, ["instructions"]),
        ({"tools": []}, ["tools"]),
        ({"messages": [{"role": "user", "content": "other"}]}, ["earlier messages"]),
        ({"messages": []}, ["earlier messages"]),
    ],
)
def test_what_changed_in_the_prefix_is_named(changes: dict[str, Any], named: list[str]) -> None:
    assert differences(body(), body(**changes)) == named


HEADER = "x-anthropic-billing-header: cc_version=2.1.128.72c; cc_entrypoint=sdk-cli; cch={};"


def test_what_claude_itself_writes_anew_into_each_request_is_no_change_and_its_neighbours_are() -> (
    None
):
    def sent(cch: str, *, left: str = "9 tokens left", version: str = "") -> dict[str, Any]:
        header = HEADER.format(cch).replace("2.1.128", version or "2.1.128")
        reminder = f"<total_tokens>{left}</total_tokens>"
        return body(system=[{"text": header}], messages=[{"role": "user", "content": reminder}])

    assert differences(sent("43789"), sent("55f72")) == []
    assert differences(sent("43789"), sent("43789", left="7 tokens left")) == []
    assert differences(sent("43789"), sent("43789", version="2.1.129")) == ["instructions"]
    assert differences(sent("43789"), sent("43789", left="no tokens")) == ["earlier messages"]
