"""The sidecar's options: the terminal agent's plan, said in the SDK's words."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grimp
import pytest

from amux import providers
from amux.providers.base import Facts, Framing, Mode, NativeResume
from amux.providers.claude_sdk import ClaudeSdkProvider
from amux.providers.claude_sdk.sidecar.options import Options
from amux.providers.errors import BadArguments, UnsupportedMode
from fixtures.requests import CONFIG, FRESH, PROTOCOL, content, grant, planned, request

if TYPE_CHECKING:
    from amux.providers.base import LaunchPlan

SDK = ClaudeSdkProvider()


def options(plan: LaunchPlan) -> Options:
    assert plan.argv[:4] == ("/opt/python", "-P", "-m", "amux.providers.claude_sdk.sidecar")
    assert plan.argv[4] == f"{CONFIG}/sidecar.json"
    return Options.from_json(content(plan, "sidecar.json").decode())


def test_the_plan_starts_a_module_that_the_provider_imports() -> None:
    """A module that a string names is an arrow that no contract sees."""
    module = planned(SDK, request(), grant()).argv[3]
    graph = grimp.build_graph("amux", cache_dir=None)
    imported = graph.find_modules_directly_imported_by("amux.providers.claude_sdk.provider")
    assert module in imported
    assert f"{module}.__main__" in graph.modules


def test_no_provider_names_a_module_of_another_room_by_a_string() -> None:
    folder = Path(providers.__file__).parent
    named = [
        (file.name, node.value)
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"amux\.(launcher|hub|materializer)(\.\w+)*", node.value)
    ]
    assert named == []


def test_the_merged_text_becomes_the_sdks_append() -> None:
    plan = planned(SDK, request("--append-system-prompt", "be brief", "--model", "m1"), grant())
    said = options(plan)
    assert said.append == plan.instructions == f"be brief\n\n{PROTOCOL}"
    assert said.cli == "/opt/agent"
    assert said.snapshot is False
    assert json.loads(said.settings or "") == {
        "env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"},
        "disableAgentView": True,
        "teammateMode": "in-process",
    }
    assert said.mcp_config == f"{CONFIG}/mcp.json"
    assert said.allowed_tools == ["mcp__amux"]
    assert said.extra == {"model": "m1", "append-subagent-system-prompt": PROTOCOL}
    assert said.session_id == plan.native_id == FRESH
    assert plan.framing is Framing.JSON_LINES
    assert dict(plan.environment) == {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}


def test_a_text_over_the_argument_limit_stays_a_file() -> None:
    said = options(planned(SDK, request("--append-system-prompt", "x" * 131_072), grant()))
    assert said.append is None
    assert said.extra["append-system-prompt-file"] == f"{CONFIG}/append-system-prompt.md"


def test_the_callers_servers_are_kept_in_one_file_beside_the_memory_tools() -> None:
    own: dict[str, Any] = {"mcpServers": {"x": {"command": "x"}, "amux": {"command": "y"}}}
    plan = planned(
        SDK,
        request("--mcp-config", json.dumps(own), "b.json"),
        grant(),
        {"/home/ann/project/b.json": b'{"mcpServers": {"b": {"command": "b"}}}'},
    )
    servers = json.loads(content(plan, "mcp.json"))["mcpServers"]
    assert {name: one["command"] for name, one in servers.items()} == {
        "x": "x",
        "amux": "/srv/amux/bin/amux",
        "b": "b",
    }
    assert options(plan).mcp_config == f"{CONFIG}/mcp.json"


def test_a_resume_and_a_fork_are_the_sdks_own_options() -> None:
    forked = request(resume=NativeResume(native_id="abc", fork=True))
    said = options(planned(SDK, forked, grant(instructions="the text of then")))
    assert (said.resume, said.fork, said.session_id) == ("abc", True, FRESH)
    assert said.append == "the text of then"


def test_without_memory_the_options_travel_in_the_argument_and_add_nothing() -> None:
    plan = planned(SDK, request("--model=m1"), None)
    said = Options.from_json(plan.argv[4])
    assert (said.append, said.snapshot, said.settings, said.mcp_config) == (None,) * 4
    assert (said.allowed_tools, said.extra) == ([], {"model": "m1"})
    assert (plan.files, plan.environment) == ((), ())


@pytest.mark.parametrize(
    "arguments", [("hi",), ("--", "hi"), ("--plugin-dir", "a", "--plugin-dir", "b"), ("-x",)]
)
def test_what_the_sdk_cannot_pass_on_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadArguments):
        SDK.plan(request(*arguments), grant(), Facts())


@pytest.mark.parametrize("mode", [Mode.TERMINAL, Mode.PASSTHROUGH])
def test_only_a_supervisor_can_talk_to_it(mode: Mode) -> None:
    with pytest.raises(UnsupportedMode, match="JSON lines"):
        SDK.plan(request(mode=mode), grant(), Facts())
