"""Codex's command line: what the caller passes, and what amux adds after it."""

from __future__ import annotations

import itertools
import json
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.providers.base import (
    AgentRequest,
    Confirmed,
    Facts,
    Framing,
    Grant,
    LaunchPlan,
    Mode,
    NativeResume,
    Preflight,
    Tools,
)
from amux.providers.codex import CodexProvider, flags, threads
from amux.providers.codex.arguments import read
from amux.providers.errors import BadArguments, UnknownVersion, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

CODEX = CodexProvider()


def request(
    *arguments: str,
    version: str = "0.171.0",
    mode: Mode = Mode.STREAM,
    resume: NativeResume | None = None,
    **options: str,
) -> AgentRequest:
    return AgentRequest(
        command=("/opt/codex",),
        version=version,
        arguments=arguments,
        mode=mode,
        resume=resume,
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
    assert all(values[name] is False for name in flags.MEMORY_OFF)
    assert len(flags.MEMORY_OFF) == 4


def test_an_enabled_feature_of_the_caller_comes_before_our_off_flags() -> None:
    plan = CODEX.plan(request("--enable", "memories"), grant(), Facts())
    assert isinstance(plan, LaunchPlan)
    assert plan.argv.index("--enable") < plan.argv.index("features.memories=false")


def test_a_feature_that_the_caller_enables_is_disabled_where_that_comes_last() -> None:
    for mode, words in ((Mode.STREAM, ()), (Mode.PASSTHROUGH, ("exec", "hello"))):
        asked = CODEX.plan(request(*words, mode=mode), grant(), Facts())
        assert "--disable" not in asked.argv
        plan = CODEX.plan(request(*words, "--enable", "x", mode=mode), grant(), Facts())
        pairs = list(itertools.pairwise(plan.argv))
        assert ("--disable", "memories") in pairs
        assert ("--disable", "memory_tool") in pairs


def test_the_server_entry_carries_the_binding_and_the_connection_but_no_secret() -> None:
    values = settings(CODEX.plan(request(), grant(), Facts()))
    assert values["mcp_servers.amux.command"] == "/usr/bin/python3"
    assert values["mcp_servers.amux.args"] == ['/run/a "b"/amux', "mcp", "--tools", "1"]
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
    assert read(("-m", "gpt-5.5", "--sandbox=read-only", "-a", "never")).overrides() == (
        "-c",
        'model="gpt-5.5"',
        "-c",
        'sandbox_mode="read-only"',
        "-c",
        'approval_policy="never"',
    )


@pytest.mark.parametrize(
    "arguments", [("--search",), ("hello",), ("-c",), ("exec", "x"), ("--", "x"), ("resume",)]
)
def test_arguments_that_an_app_server_cannot_take_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadArguments):
        CODEX.plan(request(*arguments), None, Facts())


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
    found = CODEX.find_resume(arguments)
    assert found is not None
    assert (found.native_id, found.fork) == (native_id, fork)


@pytest.mark.parametrize("arguments", [("resume",), ("exec", "resume", "--last", "go on")])
def test_a_conversation_that_codex_picks_has_no_id_in_the_arguments(
    arguments: tuple[str, ...],
) -> None:
    found = CODEX.find_resume(arguments)
    assert found is not None
    assert found.native_id == ""


@pytest.mark.parametrize(
    "arguments",
    [(), ("-m", "fork", "x"), ("exec", "resume the work"), ("exec", "fork"), ("e", "resume")],
)
def test_a_prompt_is_not_a_resume(arguments: tuple[str, ...]) -> None:
    assert CODEX.find_resume(arguments) is None


@pytest.mark.parametrize(
    "value",
    [True, False, 3, 'a "quoted" \\ line\nwith\ttabs \x7f and 记忆', ["a", 'b"'], {"a b": "c"}],
)
def test_every_literal_is_read_back_as_the_same_value(value: object) -> None:
    text = flags.toml_literal(value)
    assert "\n" not in text
    assert tomllib.loads(f"v = {text}")["v"] == value


def test_the_version_is_read_and_a_text_without_one_is_refused() -> None:
    assert CODEX.parse_version("codex-cli 0.153.4\n") == "0.153.4"
    assert CODEX.parse_version("codex-cli 0.172.0-alpha.1") == "0.172.0-alpha.1"
    with pytest.raises(UnknownVersion):
        CODEX.parse_version("segmentation fault")


def test_a_version_without_memory_mode_is_refused_for_bound_launches_only() -> None:
    with pytest.raises(UnsupportedVersion, match=r"0\.120\.0"):
        CODEX.plan(request(version="0.120.0"), grant(), Facts())
    assert isinstance(CODEX.plan(request(version="0.120.0"), None, Facts()), LaunchPlan)


def test_a_screen_that_joins_no_server_on_a_socket_is_refused_and_other_forms_are_not() -> None:
    screen = request(mode=Mode.TERMINAL, version="0.130.0")
    with pytest.raises(UnsupportedVersion, match=r"screen of Codex 0\.130\.0 .* `codex exec`"):
        CODEX.plan(screen, grant(), Facts())
    for asked in (
        request("exec", "hello", mode=Mode.TERMINAL, version="0.130.0"),
        request("exec", "hello", mode=Mode.PASSTHROUGH, version="0.130.0"),
        request(mode=Mode.TERMINAL, version="0.131.0"),
    ):
        assert isinstance(CODEX.plan(asked, grant(), Facts()), Preflight)
    channel = request(version="0.130.0")
    assert isinstance(CODEX.plan(channel, grant(), Facts()), LaunchPlan)
    assert isinstance(CODEX.plan(screen, None, Facts()), LaunchPlan)


def test_a_version_that_was_not_shown_is_named_in_a_warning() -> None:
    plan = CODEX.plan(request(version="0.180.0"), grant(), Facts())
    assert isinstance(plan, LaunchPlan)
    assert "0.180.0" in plan.warnings[0]
    shown = CODEX.plan(request(version="0.153.4"), grant(), Facts())
    assert isinstance(shown, LaunchPlan)
    assert shown.warnings == ()


CONFIRMED = Confirmed(instructions="USER\n\nPROTOCOL")


def test_a_screen_is_planned_only_after_a_preflight_with_the_same_flags() -> None:
    asked = request("-c", "model='m'", mode=Mode.TERMINAL)
    step = CODEX.plan(asked, grant(), Facts())
    assert isinstance(step, Preflight)
    plan = CODEX.plan(asked, grant(), Facts(), CONFIRMED)
    assert isinstance(plan, LaunchPlan)
    assert plan.server is not None
    assert plan.server[: len(step.argv)] == step.argv
    assert plan.socket == "/run/work/codex.sock"
    assert plan.server[-2:] == ("--listen", "unix:///run/work/codex.sock")
    assert plan.argv[-2:] == ("--remote", "unix:///run/work/codex.sock")


def test_the_screen_repeats_the_off_flags_since_its_own_flags_reach_its_threads() -> None:
    asked = request("-c", "features.memories=true", "--", "a prompt", mode=Mode.TERMINAL)
    plan = CODEX.plan(asked, grant(), Facts(), CONFIRMED)
    assert isinstance(plan, LaunchPlan)
    assert plan.argv.index("features.memories=true") < plan.argv.index("features.memories=false")
    assert plan.argv[-2:] == ("--", "a prompt")


def test_the_screen_resumes_the_session_s_conversation() -> None:
    resume = NativeResume(native_id="abc", fork=True)
    asked = request("go on", mode=Mode.TERMINAL, resume=resume)
    plan = CODEX.plan(asked, grant(), Facts(), CONFIRMED)
    assert isinstance(plan, LaunchPlan)
    assert plan.argv[:4] == ("/opt/codex", "fork", "abc", "go on")


def test_codex_exec_gets_every_control_after_the_callers_own_flags() -> None:
    asked = request(
        "-m",
        "m",
        "exec",
        "-c",
        "features.memories=true",
        "--",
        "-",
        mode=Mode.PASSTHROUGH,
        resume=NativeResume(native_id="abc"),
    )
    plan = CODEX.plan(asked, grant(), Facts(), CONFIRMED)
    assert isinstance(plan, LaunchPlan)
    assert plan.argv[:5] == ("/opt/codex", "-m", "m", "exec", "resume")
    assert settings(plan)["features.memories"] is False
    assert settings(plan)["developer_instructions"] == "USER\n\nPROTOCOL"
    assert plan.argv[-2:] == ("--", "-")
    assert plan.server is None


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (("hello",), Mode.PASSTHROUGH),
        (("login",), Mode.TERMINAL),
        (("-p", "work"), Mode.TERMINAL),
        (("exec", "--ignore-user-config", "x"), Mode.PASSTHROUGH),
        (("--remote=unix:///x",), Mode.TERMINAL),
    ],
)
def test_what_memory_cannot_be_confirmed_for_is_refused_bound_and_passed_on_unbound(
    arguments: tuple[str, ...], mode: Mode
) -> None:
    asked = request(*arguments, mode=mode)
    with pytest.raises(BadArguments):
        CODEX.plan(asked, grant(), Facts())
    plan = CODEX.plan(asked, None, Facts())
    assert isinstance(plan, LaunchPlan)
    assert plan.argv == ("/opt/codex", *arguments)


def test_a_text_of_sub_agents_too_long_for_one_argument_is_a_clear_error() -> None:
    confirmed = replace(CONFIRMED, subagent_instructions="é" * 66_000)
    for asked in (request(mode=Mode.TERMINAL), request("exec", "x", mode=Mode.PASSTHROUGH)):
        with pytest.raises(BadArguments, match=rf"{flags.SUBAGENT_TEXT} .* kernel allows 131071"):
            CODEX.plan(asked, grant(), Facts(), confirmed)


def test_a_preflight_of_a_resume_shows_whether_codex_knows_the_frozen_text_of_sub_agents() -> None:
    frozen = replace(grant(), instructions="MERGED", subagent_instructions="OWN\n\nPROTOCOL")
    asked = request("exec", "x", mode=Mode.PASSTHROUGH)
    step = CODEX.plan(asked, frozen, Facts())
    assert isinstance(step, Preflight)
    assert step.argv[-2:] == flags.text_override(flags.SUBAGENT_TEXT, "OWN\n\nPROTOCOL")
    flag = CODEX.unknown_flag(asked, ENDED.format("features.multi_agent_v2"))
    assert flag == flags.SUBAGENT_TEXT
    again = CODEX.plan(replace(asked, unknown=frozenset({flag})), frozen, Facts())
    assert isinstance(again, Preflight)
    assert again.argv == step.argv[:-2]


def test_instructions_too_long_for_one_argument_are_a_clear_error() -> None:
    asked = request(mode=Mode.TERMINAL)
    with pytest.raises(BadArguments, match="131071"):
        CODEX.plan(asked, grant(), Facts(), Confirmed(instructions="é" * 66_000))


def test_a_role_file_with_instructions_of_its_own_is_named() -> None:
    role = b'name = "mole"\ndeveloper_instructions = "dig"\n'
    files = {
        "/home/ann/.codex/agents/*.toml": b"m.toml\0" + role + b"\0n.toml\0x = [\0",
        "/w/.codex/agents/*.toml": b"o.toml\0name = 'o'\0",
        "/.codex/agents/*.toml": None,
    }
    facts = Facts(files)
    plan = CODEX.plan(request(), grant(), facts)
    assert isinstance(plan, LaunchPlan)
    assert len(plan.warnings) == 1
    assert "mole" in plan.warnings[0]
    assert "/home/ann/.codex/agents/*.toml" in CODEX.files_to_read(request())
    assert "/w/.codex/agents/*.toml" in CODEX.files_to_read(request())


def test_a_role_that_brings_native_memory_into_its_sub_agents_is_refused_where_it_does() -> None:
    role = b"m.toml\0name = 'mole'\n[features]\nmemory_tool = true\n\0"
    facts = Facts({"/home/ann/.codex/agents/*.toml": role})
    for version in ("0.124.0", "0.148.0"):
        with pytest.raises(UnsupportedVersion, match=r"role mole .*agents/m\.toml.*memory_tool"):
            CODEX.plan(request(version=version), grant(), facts)
        assert isinstance(CODEX.plan(request(version=version), None, facts), LaunchPlan)
    for version in ("0.149.0", "0.171.0"):  # on which the real agent keeps it off
        assert isinstance(CODEX.plan(request(version=version), grant(), facts), LaunchPlan)
    off = {"/home/ann/.codex/agents/*.toml": role.replace(b"true", b"false")}
    assert isinstance(CODEX.plan(request(version="0.148.0"), grant(), Facts(off)), LaunchPlan)


@pytest.mark.parametrize(
    "text",
    [
        '{"features": {"memories": true}}',
        '{"features.memory_tool": true}',
        '{"memories": {"use_memories": true}}',
        '{"developer_instructions": "x"}',
        '{"mcp_servers": {"amux": {"enabled": false}}}',
        '{"mcp_servers": 3}',
        "[]",
        "{",
    ],
)
def test_a_thread_config_that_reaches_for_what_amux_owns_is_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        CODEX.plan(request(thread_config=text), grant(), Facts())


OWN_TEXT = "subagent_developer_instructions"


@pytest.mark.parametrize(
    "config",
    [
        {f"features.multi_agent_v2.{OWN_TEXT}": "x"},
        {f"features.multi_agent_v2.{OWN_TEXT}": None},
        {f'features."multi_agent_v2".{OWN_TEXT}': ""},
        {"features.multi_agent_v2": {"enabled": True, OWN_TEXT: "x"}},
        {"features": {f"multi_agent_v2.{OWN_TEXT}": "x"}},
        {"features": {"multi_agent_v2": {OWN_TEXT: "x"}}},
    ],
)
def test_no_spelling_of_a_thread_config_takes_the_protocol_from_sub_agents(
    config: dict[str, object],
) -> None:
    with pytest.raises(BadArguments, match=f"sets features.multi_agent_v2.{OWN_TEXT}, .* leave it"):
        CODEX.plan(request(thread_config=json.dumps(config)), grant(), Facts())
    for method in ("thread/start", "thread/resume", "thread/fork"):
        with pytest.raises(BadArguments, match=OWN_TEXT):
            CODEX.rewrite_request(method, {"threadId": "t", "config": config}, "MERGED")
    assert isinstance(
        CODEX.plan(request(thread_config=json.dumps(config)), None, Facts()), LaunchPlan
    )


def test_the_text_of_sub_agents_is_added_to_a_thread_config_that_switches_them_on() -> None:
    name = "features.multi_agent_v2"
    table = {f"{name}.enabled": True, f"{name}.usage_hint_text": "x"}
    for given, expected in (
        ({name: {"enabled": True, "usage_hint_text": "x"}}, table),
        ({"features": {"multi_agent_v2": True}}, {f"{name}.enabled": True}),
        ({name: False}, {f"{name}.enabled": False}),
    ):
        sent = CODEX.rewrite_request(
            "thread/start", {"config": given}, "MERGED", subagent_instructions="OWN\n\nPROTOCOL"
        )
        own = {flags.SUBAGENT_TEXT: "OWN\n\nPROTOCOL"}
        assert sent == {
            "config": {**expected, **flags.MEMORY_OFF, **own},
            "developerInstructions": "MERGED",
        }
    plain = CODEX.rewrite_request("thread/start", {"config": {name: True}}, "MERGED")
    assert plain["config"] == {name: True, **flags.MEMORY_OFF}


def test_a_thread_config_cannot_replace_whole_tables_of_the_launch() -> None:
    owned = threads.read_config('{"features": {"web search": true}, "model": "m"}')
    assert owned == {'features."web search"': True, "model": "m", **flags.MEMORY_OFF}


def test_a_thread_config_is_refused_where_there_is_no_channel_for_it() -> None:
    asked = request("exec", "x", mode=Mode.PASSTHROUGH, thread_config="{}")
    with pytest.raises(BadArguments, match="-c"):
        CODEX.plan(asked, grant(), Facts())


ENDED = "Error: error loading default config after config error: invalid type\nin `{}`\n\n"


@pytest.mark.parametrize(
    ("at", "arguments", "unknown", "named"),
    [
        ("features", (), (), flags.DIRECT_NAMESPACES),
        ("features.code_mode", (), (), flags.DIRECT_NAMESPACES),
        ("features", ("--enable", "x"), (), flags.DIRECT_NAMESPACES),
        ("features", (), (flags.DIRECT_NAMESPACES,), "features.memories"),
        ("features", ("--enable", "x"), (flags.DIRECT_NAMESPACES,), ""),
        ("features", ("-c", "features.x=5"), (flags.DIRECT_NAMESPACES,), ""),
        ("features.x", (), (), ""),
        ("mcp_servers.amux.required", (), (), "mcp_servers.amux.required"),
        ("mcp_servers.amux", ("-c", "mcp_servers.amux.env={}"), (), ""),
        ("mcp_servers.other", (), (), ""),
        ("model", ("--model", "m"), (), ""),
    ],
)
def test_what_codex_ended_of_is_blamed_on_amux_only_where_it_was_amuxs(
    at: str, arguments: tuple[str, ...], unknown: tuple[str, ...], named: str
) -> None:
    asked = replace(request(*arguments), unknown=frozenset(unknown))
    assert CODEX.unknown_flag(asked, ENDED.format(at)) == named
    assert CODEX.unknown_flag(asked, "thread main panicked") == ""


UUID = "01a22ea8-6de0-7130-acf3-1b93d7902560"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("exec", "resume", "--last", "more"), ("exec", "resume", UUID, "more")),
        (("exec", "-m", "x", "resume", "my plan"), ("exec", "-m", "x", "resume", UUID)),
        (("exec", "resume", UUID, "more"), ("exec", "resume", UUID, "more")),
        (("exec", "fork", "my plan", "more"), ("exec", "fork", UUID, "more")),
    ],
)
def test_the_conversation_that_was_found_is_named_to_codex_by_its_id(
    words: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    resume = NativeResume(native_id=UUID, fork="fork" in words)
    asked = request(*words, mode=Mode.PASSTHROUGH, resume=resume)
    plan = CODEX.plan(asked, grant(), Facts(), Confirmed(instructions="text"))
    assert isinstance(plan, LaunchPlan)
    assert plan.argv[1 : 1 + len(expected)] == expected


HOME = "/home/ann/.codex"
DAY = f"{HOME}/sessions/2026/11/30/"


def meta(native_id: str, source: object = "exec", cwd: str = "/w") -> bytes:
    payload = {"id": native_id, "source": source, "cwd": cwd}
    return json.dumps({"type": "session_meta", "payload": payload}).encode() + b"\n{}\n"


FILES = {
    f"{HOME}/sessions/": b"2026\t1\t1\n",
    f"{HOME}/sessions/2026/": b"11\t1\t1\n",
    f"{HOME}/sessions/2026/11/": b"30\t1\t1\n",
    DAY: b"a.jsonl\t9\t10\nb.jsonl\t9\t40\nc.jsonl\t9\t30\nd.jsonl\t9\t50\ne.jsonl\t9\t20\n",
    f"{DAY}a.jsonl": meta("old"),
    f"{DAY}b.jsonl": meta("elsewhere", cwd="/other"),
    f"{DAY}c.jsonl": meta("late"),
    f"{DAY}d.jsonl": meta("child", {"subagent": "review"}),
    f"{DAY}e.jsonl": meta("person", "cli"),
    f"{HOME}/session_index.jsonl": (
        b'{"id": "first", "thread_name": "plan"}\n{"id": "second", "thread_name": "plan"}\n'
    ),
}


def found(files: Mapping[str, bytes], *words: str) -> NativeResume | None:
    """Answer each question with the files, as the launcher does."""
    asked = request(*words, mode=Mode.PASSTHROUGH)
    named = CODEX.find_resume(words)
    assert named is not None
    known: dict[str, bytes | None] = {}
    for _ in range(8):
        answer = CODEX.resolve_resume(asked, named, Facts(known))
        if not isinstance(answer, tuple):
            return answer
        known |= {path: files.get(path) for path in answer}
    raise AssertionError(known)


@pytest.mark.parametrize(
    ("words", "native_id"),
    [
        (("exec", "resume", "--last", "more"), "late"),
        (("exec", "resume", "--all", "--last"), "elsewhere"),
        (("resume", "--last"), "person"),
        (("resume", "--last", "--include-non-interactive"), "late"),
        (("exec", "resume", "plan"), "second"),
        (("exec", "resume", "no such plan"), "no such plan"),
        (("exec", "fork", UUID), UUID),
        (("resume",), ""),
    ],
)
def test_the_last_conversation_and_a_named_one_are_found_in_codex_s_files(
    words: tuple[str, ...], native_id: str
) -> None:
    assert found(FILES, *words) == NativeResume(native_id=native_id, fork="fork" in words)


def test_where_no_conversation_is_the_last_one_a_new_one_begins() -> None:
    assert found({}, "exec", "resume", "--last") is None
    assert found({**FILES, DAY: b""}, "exec", "resume", "--last") is None


def test_a_review_in_a_conversation_of_its_own_is_refused_and_one_inline_is_not() -> None:
    asked = {"threadId": "t", "target": {"type": "custom", "instructions": "look"}}
    with pytest.raises(BadArguments, match="does not get the memory protocol"):
        CODEX.rewrite_request("review/start", {**asked, "delivery": "detached"}, "MERGED")
    for params in (asked, {**asked, "delivery": "inline"}):
        assert CODEX.rewrite_request("review/start", params, "MERGED") == params
