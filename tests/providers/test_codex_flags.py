"""Codex's command line: what the caller passes, and what amux adds after it."""

from __future__ import annotations

import tomllib

import pytest

from providers.base import AgentRequest, Facts, Framing, Grant, LaunchPlan, Mode, Tools
from providers.codex import CodexProvider, flags
from providers.errors import BadArguments, UnknownVersion, UnsupportedVersion

CODEX = CodexProvider()


def request(*arguments: str, version: str = "0.171.0", **options: str) -> AgentRequest:
    return AgentRequest(
        command=("/opt/codex",),
        version=version,
        arguments=arguments,
        mode=Mode.STREAM,
        cwd="/w",
        home="/home/ann",
        environment={"HOME": "/home/ann"},
        options={name.replace("_", "-"): value for name, value in options.items()},
    )


def grant(cli: tuple[str, ...] = ("/usr/bin/python3", '/run/a "b"/amux')) -> Grant:
    return Grant(
        binding="principal:ann",
        protocol="PROTOCOL",
        tools=Tools.MCP,
        cli=cli,
        connection="/run/a/connection.json",
        config="/run/a",
        work="/run/work",
    )


def settings(plan: object) -> dict[str, object]:
    assert isinstance(plan, LaunchPlan)
    found: dict[str, object] = {}
    for flag, value in zip(plan.argv, plan.argv[1:], strict=False):
        if flag == "-c":
            name, _, text = value.partition("=")
            found[name] = tomllib.loads(f"v = {text}")["v"]
    return found


def test_a_bound_launch_passes_all_four_off_flags_after_the_callers_own() -> None:
    plan = CODEX.plan(request("-c", "features.memories=true"), grant(), Facts())
    values = settings(plan)
    assert all(values[name] is False for name in flags.OFF)
    assert len(flags.OFF) == 4


def test_an_enabled_feature_of_the_caller_comes_before_our_off_flags() -> None:
    plan = CODEX.plan(request("--enable", "memories"), grant(), Facts())
    assert isinstance(plan, LaunchPlan)
    assert plan.argv.index("--enable") < plan.argv.index("features.memories=false")


def test_the_server_entry_carries_the_binding_and_the_connection_but_no_secret() -> None:
    values = settings(CODEX.plan(request(), grant(), Facts()))
    assert values["mcp_servers.amux.command"] == "/usr/bin/python3"
    assert values["mcp_servers.amux.args"] == ['/run/a "b"/amux', "mcp"]
    assert values["mcp_servers.amux.required"] is True
    assert values["mcp_servers.amux.env"] == {
        "AMUX_MEMORY_BINDING": "principal:ann",
        "AMUX_CONNECTION": "/run/a/connection.json",
    }


def test_an_unbound_launch_changes_no_setting_of_codex() -> None:
    plan = CODEX.plan(request(), None, Facts())
    assert isinstance(plan, LaunchPlan)
    assert plan.argv == ("/opt/codex", "app-server")
    assert plan.framing is Framing.JSON_RPC


def test_hooks_are_switched_off_only_when_asked() -> None:
    assert "features.hooks" not in settings(CODEX.plan(request(), grant(), Facts()))
    plan = CODEX.plan(request(without_hooks="true"), grant(), Facts())
    assert settings(plan)["features.hooks"] is False


def test_model_sandbox_and_approval_flags_become_overrides() -> None:
    caller = flags.for_server(("-m", "gpt-5.5", "--sandbox=read-only", "-a", "never"))
    assert caller.overrides == (
        "-c",
        'model="gpt-5.5"',
        "-c",
        'sandbox_mode="read-only"',
        "-c",
        'approval_policy="never"',
    )


@pytest.mark.parametrize("arguments", [("--search",), ("hello",), ("-c",)])
def test_arguments_that_an_app_server_cannot_take_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadArguments):
        flags.for_server(arguments)


@pytest.mark.parametrize(
    ("arguments", "native_id", "fork"),
    [
        (("resume", "abc"), "abc", False),
        (("-m", "resume", "fork", "abc"), "abc", True),
        (("exec", "resume", "abc", "go on"), "abc", False),
    ],
)
def test_a_native_resume_is_found_by_its_id(
    arguments: tuple[str, ...], native_id: str, *, fork: bool
) -> None:
    found = CODEX.native_resume(arguments)
    assert found is not None
    assert (found.native_id, found.fork) == (native_id, fork)


@pytest.mark.parametrize("arguments", [(), ("-m", "fork", "x"), ("exec", "resume the work")])
def test_a_prompt_is_not_a_resume(arguments: tuple[str, ...]) -> None:
    assert CODEX.native_resume(arguments) is None


@pytest.mark.parametrize(
    "value",
    [True, False, 3, 'a "quoted" \\ line\nwith\ttabs \x7f and 记忆', ["a", 'b"'], {"a b": "c"}],
)
def test_every_literal_is_read_back_as_the_same_value(value: object) -> None:
    text = flags.literal(value)
    assert "\n" not in text
    assert tomllib.loads(f"v = {text}")["v"] == value


def test_the_version_is_read_and_a_text_without_one_is_refused() -> None:
    assert CODEX.version("codex-cli 0.153.4\n") == "0.153.4"
    assert CODEX.version("codex-cli 0.172.0-alpha.1") == "0.172.0-alpha.1"
    with pytest.raises(UnknownVersion):
        CODEX.version("segmentation fault")


def test_a_version_without_memory_mode_is_refused_for_bound_launches_only() -> None:
    with pytest.raises(UnsupportedVersion, match=r"0\.120\.0"):
        CODEX.plan(request(version="0.120.0"), grant(), Facts())
    assert isinstance(CODEX.plan(request(version="0.120.0"), None, Facts()), LaunchPlan)


def test_a_version_that_was_not_shown_is_named_in_a_warning() -> None:
    plan = CODEX.plan(request(version="0.180.0"), grant(), Facts())
    assert isinstance(plan, LaunchPlan)
    assert "0.180.0" in plan.warnings[0]
    shown = CODEX.plan(request(version="0.153.4"), grant(), Facts())
    assert isinstance(shown, LaunchPlan)
    assert shown.warnings == ()
