"""Claude's command line: what the caller gave, and what a bound launch makes of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amux.providers.base import (
    AgentRequest,
    Confirmed,
    Facts,
    FileSearch,
    Framing,
    LaunchPlan,
    Mode,
    NativeResume,
    Preflight,
)
from amux.providers.claude import ClaudeProvider
from amux.providers.claude import arguments as argv
from amux.providers.claude.conversation import UNNAMED
from amux.providers.errors import (
    BadArguments,
    NotConfirmed,
    ToolsNotLoaded,
    UnknownVersion,
    UnsupportedVersion,
)
from fixtures.requests import (
    CONFIG,
    FRESH,
    PROTOCOL,
    ScriptedChannel,
    content,
    grant,
    option,
    planned,
    request,
)

CLAUDE = ClaudeProvider()
NOTES = "/home/ann/project/notes.md"
KNOWN = "aaaaaaaa-0000-4000-8000-00000000000a"
SWITCH = "CLAUDE_CODE_DISABLE_AUTO_MEMORY"
HERE = {"disableAgentView": True, "teammateMode": "in-process"}


def settings(plan: LaunchPlan) -> dict[str, Any]:
    (value,) = option(plan, "--settings")
    inline = value.startswith("{")
    text = value if inline else content(plan, value.removeprefix(f"{CONFIG}/"))
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        ((), ()),
        (("--append-system-prompt", "be brief"), ("be brief",)),
        (("--append-system-prompt=be brief",), ("be brief",)),
        (("--append-system-prompt", "--be=odd"), ("--be=odd",)),
        (("--append-system-prompt-file", "notes.md"), ("from the file",)),
        (("--append-system-prompt-file=" + NOTES,), ("from the file",)),
        (
            ("--append-system-prompt", "a", "--append-system-prompt=b", "-p", "hi"),
            ("a", "b"),
        ),
        (
            ("--append-system-prompt-file", "notes.md", "--append-system-prompt", "a"),
            ("from the file", "a"),
        ),
    ],
)
def test_every_spelling_of_an_append_goes_into_one_option_before_the_protocol(
    arguments: tuple[str, ...], own: tuple[str, ...]
) -> None:
    plan = planned(CLAUDE, request(*arguments), grant(), {NOTES: b"from the file"})
    assert option(plan, "--append-system-prompt") == ["\n\n".join((*own, PROTOCOL))]
    assert plan.instructions == "\n\n".join((*own, PROTOCOL))
    assert option(plan, "--append-system-prompt-file") == []
    assert "--append-system-prompt" not in plan.argv
    assert plan.argv.count("-p") == arguments.count("-p")


def test_a_word_that_is_another_options_value_is_no_append() -> None:
    arguments = ("--system-prompt", "--append-system-prompt", "-n", "--append-system-prompt=x")
    plan = planned(CLAUDE, request(*arguments), grant())
    assert plan.instructions == PROTOCOL
    assert plan.argv[1:5] == arguments


@pytest.mark.parametrize("length", [131_071, 131_072, 400_000])
def test_a_text_over_the_argument_limit_goes_by_way_of_a_file(length: int) -> None:
    fixed = len(f"--append-system-prompt=\n\n{PROTOCOL}".encode())
    text = "é" * ((length - fixed) // 2) + "x" * ((length - fixed) % 2)
    plan = planned(CLAUDE, request("--append-system-prompt", text), grant())
    assert all(len(word.encode()) <= 131_071 for word in plan.argv)
    merged = f"{text}\n\n{PROTOCOL}"
    assert plan.instructions == merged
    if length > 131_071:
        assert option(plan, "--append-system-prompt") == []
        (path,) = option(plan, "--append-system-prompt-file")
        assert content(plan, path.removeprefix(f"{CONFIG}/")) == merged.encode()
    else:
        assert option(plan, "--append-system-prompt") == [merged]


def test_an_append_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(BadArguments, match=NOTES):
        CLAUDE.plan(request("--append-system-prompt-file=notes.md"), grant(), Facts())


def test_auto_memory_is_off_in_environment_and_settings_without_a_file() -> None:
    plan = planned(CLAUDE, request(), grant())
    assert dict(plan.environment) == {SWITCH: "1"}
    assert settings(plan) == {"env": {SWITCH: "1"}, **HERE}
    assert [one.name for one in plan.files] == ["mcp.json"]


def test_several_settings_of_the_caller_are_merged_in_order_into_a_private_file() -> None:
    first = {"model": "a", "env": {SWITCH: "0", "K": "1"}, "permissions": {"allow": ["Read"]}}
    second = b'\xef\xbb\xbf{"model": "b", "permissions": {"allow": ["Read", "Edit"]}}'
    plan = planned(
        CLAUDE,
        request("--settings", json.dumps(first), "--settings=extra.json"),
        grant(),
        {"/home/ann/project/extra.json": second},
    )
    assert option(plan, "--settings") == [f"{CONFIG}/settings.json"]
    assert settings(plan) == {
        "model": "b",
        "env": {SWITCH: "1", "K": "1"},
        "permissions": {"allow": ["Read", "Edit"]},
        **HERE,
    }
    assert any("stays off" in text for text in plan.warnings)


def test_rules_that_begin_at_the_settings_files_folder_keep_their_meaning() -> None:
    rules = ["Read(/key.pem)", "Read(//etc/x)", "Read(~/y)", "Edit(./z)", "Bash(/bin/ls)"]
    plan = planned(
        CLAUDE,
        request("--settings=/etc/team/s.json"),
        grant(),
        {"/etc/team/s.json": json.dumps({"permissions": {"deny": rules}}).encode()},
    )
    assert settings(plan)["permissions"]["deny"] == ["Read(//etc/team/key.pem)", *rules[1:]]


@pytest.mark.parametrize("value", ["{broken}", "missing.json", "list.json"])
def test_settings_that_cannot_be_merged_are_refused(value: str) -> None:
    with pytest.raises(BadArguments, match=r"settings|list\.json"):
        CLAUDE.plan(
            request("--settings", value), grant(), Facts({"/home/ann/project/list.json": b"[]"})
        )


def test_the_memory_tools_are_added_after_the_callers_servers_and_permissions() -> None:
    own = '{"mcpServers": {"amux": {"command": "x"}}}'
    plan = planned(
        CLAUDE, request("--mcp-config", own, "b.json", "--allowed-tools", "Read", "-p"), grant()
    )
    assert plan.argv[1:7] == ("--mcp-config", own, "b.json", "--allowed-tools", "Read", "-p")
    assert option(plan, "--mcp-config") == [f"{CONFIG}/mcp.json"]
    assert option(plan, "--allowedTools") == ["mcp__amux"]
    server = json.loads(content(plan, "mcp.json"))["mcpServers"]["amux"]
    assert (server["command"], server["args"]) == ("/srv/amux/bin/amux", ["mcp", "--tools", "1"])
    assert server["env"]["AMUX_MEMORY_BINDING"] == "principal:ann"
    assert any("amux is left out" in text for text in plan.warnings)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--disallowedTools", "Bash,mcp__amux"),
        ("--disallowed-tools=mcp__amux__amux_memory_get",),
        ("--settings", '{"permissions": {"deny": ["mcp__amux"]}}'),
    ],
)
def test_a_rule_of_the_callers_against_the_memory_tools_stands_and_is_reported(
    arguments: tuple[str, ...],
) -> None:
    plan = planned(CLAUDE, request(*arguments), grant())
    assert any("deny the memory tools" in text for text in plan.warnings)


def test_options_are_added_before_a_double_dash_and_never_swallow_the_prompt() -> None:
    plan = planned(CLAUDE, request("-p", "--", "--resume", "x"), grant())
    assert plan.argv[-3:] == ("--", "--resume", "x")
    assert all("=" in word for word in plan.argv[2:-3] if word.startswith("--m"))
    assert plan.native_id == FRESH


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request("--system-prompt-snapshot", "on"), "--system-prompt-snapshot stays off"),
        (request(environment={SWITCH: "0"}), "environment switch Claude's own memory on"),
        (request("--teammate-mode", "tmux"), "teammates run in this Claude"),
    ],
)
def test_what_a_launch_overrules_is_said(asked: AgentRequest, said: str) -> None:
    (warning,) = planned(CLAUDE, asked, grant()).warnings
    assert said in warning


@pytest.mark.parametrize(
    ("version", "snapshot"), [("2.1.197", []), ("2.1.256", []), ("2.1.257", ["off"])]
)
def test_the_prompt_snapshot_is_switched_off_where_it_exists(
    version: str, snapshot: list[str]
) -> None:
    plan = planned(CLAUDE, request("-p", version=version), grant())
    assert option(plan, "--system-prompt-snapshot") == snapshot


def test_sub_agents_get_the_protocol_by_an_option_or_in_older_versions_by_a_hook() -> None:
    asked = request("--append-subagent-system-prompt", "be kind")
    new = planned(CLAUDE, asked, grant())
    assert option(new, "--append-subagent-system-prompt") == [f"be kind\n\n{PROTOCOL}"]
    old = planned(CLAUDE, replace(request(), version="2.1.197"), grant())
    assert option(old, "--append-subagent-system-prompt") == []
    (hook,) = settings(old)["hooks"]["SubagentStart"]
    kinds = ["general-purpose", "Explore", "forklift", "fork"]
    assert [bool(re.search(hook["matcher"], kind)) for kind in kinds] == [True, True, True, False]
    assert hook["hooks"] == [{"type": "command", "command": f"cat {CONFIG}/subagent-start.json"}]
    said = json.loads(content(old, "subagent-start.json"))["hookSpecificOutput"]
    assert said == {"hookEventName": "SubagentStart", "additionalContext": PROTOCOL}
    assert old.warnings == ()
    terminal = replace(asked, mode=Mode.TERMINAL)
    screen = CLAUDE.plan(terminal, grant(), Facts(), Confirmed())
    assert isinstance(screen, LaunchPlan)
    assert option(screen, "--append-subagent-system-prompt") == []
    said = json.loads(content(screen, "subagent-start.json"))["hookSpecificOutput"]
    assert said["additionalContext"] == f"be kind\n\n{PROTOCOL}"


@pytest.mark.parametrize(
    ("source", "found", "hook"),
    [
        ("userSettings", {}, "by a SubagentStart hook"),
        ("userSettings", {"strictPluginOnlyCustomization": ["mcp"]}, "by a SubagentStart hook"),
        ("userSettings", {"disableAllHooks": True}, "absent"),
        ("policySettings", {"allowManagedHooksOnly": True}, "absent"),
        ("policySettings", {"strictPluginOnlyCustomization": True}, "absent"),
        ("policySettings", {"strictPluginOnlyCustomization": ["mcp", "hooks"]}, "absent"),
    ],
)
def test_a_hook_is_not_reported_where_a_source_of_settings_stops_it(
    source: str, found: dict[str, Any], hook: str
) -> None:
    quiet = {"source": "flagSettings", "settings": {"disableAllHooks": True}}
    told = [quiet, {"source": source, "settings": found}]
    body = {"effective": {"env": {SWITCH: "1"}}, "sources": told}
    confirmed = CLAUDE.confirm_preflight(asking(body), request(version="2.1.197"), grant())
    *_, reached = confirmed.evidence
    assert (reached.control, reached.observed) == ("protocol in sub-agents", hook)
    assert [source in text for text in confirmed.warnings] == [True] * (hook == "absent")
    appended = CLAUDE.confirm_preflight(asking(body), request(), grant())
    assert appended.evidence[-1].observed == "appended"
    assert appended.warnings == ()


def test_hooks_that_the_callers_own_settings_stop_are_known_to_the_pre_flight() -> None:
    asked = request("--settings", '{"disableAllHooks":true}', mode=Mode.TERMINAL)
    step = CLAUDE.plan(asked, grant(), Facts())
    assert isinstance(step, Preflight)
    (file,) = step.files
    told = [{"source": "flagSettings", "settings": json.loads(file.content)}]
    body = {"effective": {"env": {SWITCH: "1"}}, "sources": told}
    confirmed = CLAUDE.confirm_preflight(asking(body), asked, grant())
    assert confirmed.evidence[-1].observed == "absent"
    assert any("--settings switches hooks off" in text for text in confirmed.warnings)


@pytest.mark.parametrize(
    ("arguments", "effective"),
    [
        ((), {"permissions": {"deny": ["mcp__*"]}}),
        ((), {"permissions": {"deny": ["Bash", "mcp__amux"]}}),
        ((), {"agent": "reviewer"}),
        ((), {"env": {SWITCH: "1", "MCP_TIMEOUT": "1"}}),
        (("--agent", "reviewer"), {}),
        (("--disallowedTools", "Bash,mcp__am*"), {}),
    ],
)
def test_in_doubt_claude_is_asked_which_tools_it_offers(
    arguments: tuple[str, ...], effective: dict[str, Any]
) -> None:
    body = {"effective": {"env": {SWITCH: "1"}, **effective}, "sources": []}
    asked = request(*arguments)
    one = {"name": "mcp__amux__amux_memory_search"}
    for listed, observed in (([one], "connected, 1 offered"), ([], "none offered")):
        channel = asking(body, {"mcpTools": [{"name": "mcp__other__x"}, *listed]})
        confirmed = CLAUDE.handshake(channel, asked, grant(), planned(CLAUDE, asked, grant()))
        assert confirmed.evidence[1].observed == observed
        lacking = [text for text in confirmed.warnings if "none of the memory tools" in text]
        assert len(lacking) == (not listed)


@pytest.mark.parametrize(
    ("allow", "said"), [([], True), (["Bash"], True), (["mcp__amux"], False), (["mcp__*"], False)]
)
def test_managed_rules_that_do_not_permit_the_tools_are_told(allow: list[str], said: bool) -> None:  # noqa: FBT001
    policy = {"allowManagedPermissionRulesOnly": True, "permissions": {"allow": allow}}
    told = [{"source": "policySettings", "settings": policy}]
    body = {"effective": {"env": {SWITCH: "1"}}, "sources": told}
    confirmed = CLAUDE.confirm_preflight(asking(body), request(), grant())
    assert any("asks before each call" in text for text in confirmed.warnings) is said


def test_a_stream_adds_what_it_needs_and_keeps_what_the_caller_said() -> None:
    plan = planned(CLAUDE, request("-p", "--input-format", "stream-json"), grant())
    assert plan.framing is Framing.JSON_LINES
    assert "--print" not in plan.argv
    assert option(plan, "--input-format") == []
    assert option(plan, "--output-format") == ["stream-json"]


FROZEN = "the text of then"


@pytest.mark.parametrize(
    ("arguments", "fork", "words"),
    [
        ((), False, ["--resume=abc"]),
        (("--continue",), False, ["--resume=abc"]),
        (("-r", "other"), False, ["--resume=abc"]),
        (("--session-id", "x"), False, ["--resume=abc"]),
        ((), True, ["--resume=abc", "--fork-session", f"--session-id={FRESH}"]),
        (("--fork-session",), True, ["--resume=abc", "--fork-session", f"--session-id={FRESH}"]),
    ],
)
def test_a_resume_sends_the_frozen_text_byte_for_byte(
    arguments: tuple[str, ...],
    fork: bool,  # noqa: FBT001  # a parameter of the table above
    words: list[str],
) -> None:
    resumed = request(*arguments, resume=NativeResume(native_id="abc", fork=fork))
    plan = planned(CLAUDE, resumed, grant(instructions=FROZEN))
    assert option(plan, "--append-system-prompt") == [FROZEN]
    assert list(plan.argv[-len(words) :]) == words
    assert not {"--continue", "-r", "other", "x"} & set(plan.argv)
    assert plan.argv.count("--fork-session") == int(fork)
    assert plan.native_id == (FRESH if fork else "abc")


def test_new_append_text_on_a_resume_is_not_sent_and_that_is_said() -> None:
    resumed = request("--append-system-prompt", "new", resume=NativeResume(native_id="abc"))
    plan = planned(CLAUDE, resumed, grant(instructions=FROZEN))
    assert option(plan, "--append-system-prompt") == [FROZEN]
    assert any("new append text is not sent" in text for text in plan.warnings)


def test_a_conversation_that_read_native_memory_in_between_is_not_called_clean() -> None:
    resumed = request(resume=NativeResume(native_id="abc"))
    (trace,) = CLAUDE.files_to_search(resumed)
    assert trace == FileSearch("/home/ann/.claude/projects/*/abc.jsonl", b'"type":"AutoMem"')
    clean = planned(CLAUDE, resumed, grant(instructions=FROZEN))
    read = planned(CLAUDE, resumed, grant(instructions=FROZEN), facts=Facts({}, frozenset({trace})))
    assert not any("read Claude's own memory" in text for text in clean.warnings)
    assert any("read Claude's own memory" in text for text in read.warnings)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("-p", "hi"), None),
        (("--resume", "abc"), NativeResume(native_id="abc")),
        (("--resume=abc",), NativeResume(native_id="abc")),
        (("-r", "abc", "hi"), NativeResume(native_id="abc")),
        (("-rabc",), NativeResume(native_id="abc")),
        (("-pr", "abc"), NativeResume(native_id="abc")),
        (("--resume", "abc", "--fork-session"), NativeResume(native_id="abc", fork=True)),
        (("-r",), NativeResume(native_id=UNNAMED)),
        (("-c",), NativeResume(native_id=UNNAMED)),
        (("-pc", "hi"), NativeResume(native_id=UNNAMED)),
        (("--continue", "-p"), NativeResume(native_id=UNNAMED)),
        (("--from-pr", "7"), NativeResume(native_id=UNNAMED)),
        (("--teleport",), NativeResume(native_id=UNNAMED)),
        (("--append-system-prompt", "--resume"), None),
        (("-p", "--", "--resume"), None),
    ],
)
def test_a_native_resume_is_found_in_every_spelling(
    arguments: tuple[str, ...], found: NativeResume | None
) -> None:
    assert CLAUDE.find_resume(arguments) == found


@pytest.mark.parametrize("arguments", [("--resume", KNOWN, "-p", "hi"), ("-c", "-p", "hi")])
def test_an_unknown_native_conversation_is_resumed_exactly_as_the_caller_asked(
    arguments: tuple[str, ...],
) -> None:
    asked = request(*arguments, mode=Mode.PASSTHROUGH, resume=CLAUDE.find_resume(arguments))
    plan = planned(CLAUDE, asked, None)
    assert plan.argv == ("/opt/agent", *arguments)
    assert (plan.environment, plan.files, plan.instructions) == ((), (), None)
    assert plan.native_id == (KNOWN if KNOWN in arguments else None)


def test_without_memory_a_new_conversation_gets_an_id_and_nothing_else() -> None:
    plan = planned(CLAUDE, request("-p", "hi", mode=Mode.PASSTHROUGH), None)
    assert plan.argv == ("/opt/agent", "-p", "hi", f"--session-id={FRESH}")
    assert plan.native_id == FRESH
    assert plan.environment == ()


FOLDER = "/home/ann/.claude/projects/-home-ann-my-project/"
OLD = "11111111-1111-4111-8111-111111111111"


def resolved(
    arguments: tuple[str, ...], content: bytes | None, cwd: str = "/home/ann/my project"
) -> tuple[str | None, NativeResume | None]:
    """Return which file is asked for, and the conversation that its content tells."""
    own = CLAUDE.find_resume(arguments)
    assert own is not None
    asked = request(*arguments, cwd=cwd)
    answer = CLAUDE.resolve_resume(asked, own, Facts())
    if not isinstance(answer, tuple):
        return None, answer
    (path,) = answer
    found = CLAUDE.resolve_resume(asked, own, Facts({path: content}))
    assert not isinstance(found, tuple)
    return path, found


def test_continue_takes_the_conversation_of_the_folder_that_was_written_last() -> None:
    rows = [f"{OLD}.jsonl\t90\t50", f"{KNOWN}.jsonl\t10\t70", "agent-x.jsonl\t9\t99"]
    rows += [f"{FRESH}.jsonl\t0\t99", f"{FRESH}\t0\t98", "memory\t0\t97"]
    listing = "".join(f"{row}\n" for row in rows).encode()
    assert resolved(("-c", "-p"), listing) == (FOLDER, NativeResume(native_id=KNOWN))
    forked = NativeResume(native_id=KNOWN, fork=True)
    assert resolved(("--continue", "--fork-session"), listing) == (FOLDER, forked)
    for empty in (None, b""):
        assert resolved(("-c",), empty) == (FOLDER, None)


def test_a_path_names_the_conversation_that_its_lines_say_or_its_name() -> None:
    line = json.dumps({"type": "user", "sessionId": KNOWN.upper()}).encode()
    path = "/home/ann/my project/kept/x.jsonl"
    content = b"not json\n[]\n" + line + b"\n"
    found = NativeResume(native_id=KNOWN, place=path)
    assert resolved(("--resume", "kept/x.jsonl"), content) == (path, found)
    other = f"/a/{OLD}.jsonl"
    by_name = NativeResume(native_id=OLD, place=other)
    assert resolved((f"--resume={other}",), b"{}") == (other, by_name)
    gone = NativeResume(native_id=other, place=other)
    assert resolved(("--resume", other), None) == (other, gone)


def test_an_id_is_the_same_in_capitals() -> None:
    assert resolved(("--resume", KNOWN.upper()), None) == (None, NativeResume(native_id=KNOWN))


@pytest.mark.parametrize(
    "arguments", [("--resume",), ("-r", "my title"), ("--from-pr", "7"), ("--teleport",)]
)
def test_what_somebody_picks_in_claude_is_bound_without_an_id(arguments: tuple[str, ...]) -> None:
    assert resolved(arguments, None) == (None, None)
    plan = planned(CLAUDE, request(*arguments), grant())
    assert plan.argv[1 : 1 + len(arguments)] == arguments
    assert option(plan, "--session-id") == []
    assert plan.native_id is None
    assert any("picked in Claude" in text for text in plan.warnings)


def test_a_folder_whose_name_claude_cuts_is_not_guessed() -> None:
    assert resolved(("--continue",), b"", cwd="/" + "d" * 200) == (None, None)


def test_what_was_found_is_what_is_opened() -> None:
    found = NativeResume(native_id=KNOWN)
    continued = planned(CLAUDE, request("-c", "-p", "hi", resume=found), grant(instructions="x"))
    assert option(continued, "--resume") == [KNOWN]
    assert "-c" not in continued.argv
    foreign = request("-c", "-p", "hi", mode=Mode.PASSTHROUGH, resume=found)
    plan = planned(CLAUDE, foreign, None)
    assert plan.argv == ("/opt/agent", "-p", "hi", f"--resume={KNOWN}")
    assert plan.native_id == KNOWN
    by_path = request("--resume", "kept/x.jsonl", resume=replace(found, place="/a/kept/x.jsonl"))
    plan = planned(CLAUDE, by_path, grant(instructions="x"))
    assert option(plan, "--resume") == ["/a/kept/x.jsonl"]
    assert plan.native_id == KNOWN


@pytest.mark.parametrize("mode", [Mode.TERMINAL, Mode.PASSTHROUGH])
def test_without_a_stream_a_preflight_of_the_same_binary_and_settings_comes_first(
    mode: Mode,
) -> None:
    asked = request("-p", "--settings", '{"env": {"A": "1"}}', "--setting-sources=user", mode=mode)
    first = CLAUDE.plan(asked, grant(), Facts())
    assert isinstance(first, Preflight)
    assert first.argv[0] == "/opt/agent"
    assert "--setting-sources=user" in first.argv
    assert f"--settings={CONFIG}/preflight.json" in first.argv
    assert json.loads(first.files[0].content) == {
        "env": {"A": "1", SWITCH: "1"},
        "disableAllHooks": True,
    }
    then = CLAUDE.plan(asked, grant(), Facts(), Confirmed())
    assert not isinstance(then, Preflight)
    assert then.framing is Framing.RAW


@pytest.mark.parametrize("version", ["2.1.112", "2.1.197", "2.1.205", "2.1.332"])
@pytest.mark.parametrize("mode", [Mode.TERMINAL, Mode.PASSTHROUGH])
@pytest.mark.parametrize("text", ["", "x" * 200_000])
def test_a_preflight_has_each_option_of_amuxs_that_its_launch_has_and_none_of_their_texts(
    version: str, mode: Mode, text: str
) -> None:
    asked = request("hi", "--append-system-prompt", f"private {text}", mode=mode, version=version)
    first = CLAUDE.plan(asked, grant(), Facts())
    then = CLAUDE.plan(asked, grant(), Facts(), Confirmed())
    assert isinstance(first, Preflight)
    assert not isinstance(then, Preflight)
    mine = {
        word.partition("=")[0]
        for word in then.argv
        if word.startswith(("--append-", "--system-prompt-", "--allowedTools", "--settings"))
    }
    assert len(mine) >= 3
    assert mine <= {word.partition("=")[0] for word in first.argv}
    assert not any("private" in word for word in first.argv)


def test_a_preflight_is_remembered_only_for_the_same_of_everything_it_depends_on() -> None:
    def digest(
        asked: AgentRequest, files: dict[str, bytes] | None = None, run: str = CONFIG
    ) -> str | None:
        step = CLAUDE.plan(asked, replace(grant(), config=run), Facts(dict(files or {})))
        assert isinstance(step, Preflight)
        return step.remember

    elsewhere = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}  # where no organisation sends settings
    asked = request("-p", "hi", mode=Mode.PASSTHROUGH, environment=elsewhere)
    same = digest(asked)
    assert same is not None
    other_run = {"PATH": "/runs/1/agent-config/memory/bin:/usr/bin", "AMUX_CLI": "/other"}
    shell = {"SHLVL": "3", "TERM": "dumb"}
    assert digest(replace(asked, environment={**asked.environment, **shell})) == same
    assert digest(replace(asked, arguments=("-p", "something else"))) == same
    assert (
        digest(
            replace(asked, environment={**asked.environment, **other_run}),
            run="/runs/1/agent-config/memory",
        )
        == same
    )
    others = [
        digest(replace(asked, version="2.1.331")),
        digest(replace(asked, command=("/opt/other",))),
        digest(replace(asked, cwd="/home/ann/other")),
        digest(replace(asked, home="/home/bob")),
        digest(replace(asked, environment={**asked.environment, "CLAUDE_CODE_SIMPLE": "1"})),
        digest(replace(asked, arguments=("--settings={}", "--restricted"))),
        digest(replace(asked, arguments=('--settings={"model":"m"}',))),
        *(digest(asked, {path: b"{}"}) for path in _settings(asked)),
        *(digest(asked, {STATE[0]: json.dumps(state).encode()}) for state in DECIDING),
    ]
    assert len({same, *others}) == len(others) + 1
    assert None not in others
    assert "/etc/claude-code/managed-settings.d/*.json" in CLAUDE.files_to_read(asked)
    for passing in ({"numStartups": 7}, {"projects": {"/home/ann": {"lastCost": 1}}}):
        assert digest(asked, {STATE[0]: json.dumps(passing).encode()}) == same


def _settings(asked: AgentRequest) -> list[str]:
    """Name the files whose whole content decides; others are asked for other things."""
    apart = ("/projects/", "/plugins/", *STATE)
    return [path for path in CLAUDE.files_to_read(asked) if not any(one in path for one in apart)]


STATE = ("/home/ann/.claude.json", "/home/ann/.claude/.credentials.json")
DECIDING: tuple[dict[str, Any], ...] = (
    {"projects": {"/home/ann/project": {"disabledMcpServers": ["amux"]}}},
    {"projects": {"/home/ann/project": {"hasTrustDialogAccepted": True}}},
    {"projects": {"/home/ann": {"hasTrustDialogAccepted": True}}},
)
MANAGED = "/etc/claude-code/managed-settings"
LOGINS = [("max", True), ("pro", True), ("team", False), ("enterprise", False), (None, False)]


def remembered(files: dict[str, bytes], *words: str, **environment: str) -> bool:
    asked = request(*words, mode=Mode.PASSTHROUGH, environment=environment)
    step = CLAUDE.plan(asked, grant(), Facts(dict(files)))
    assert isinstance(step, Preflight)
    return step.remember is not None


@pytest.mark.parametrize(("plan", "kept"), LOGINS)
def test_an_answer_is_remembered_only_for_a_login_that_no_organisation_sends_settings(
    plan: str | None, *, kept: bool
) -> None:
    login = json.dumps({"claudeAiOauth": {"accessToken": "t", "subscriptionType": plan}})
    files = {STATE[1]: login.encode()}
    assert remembered(files) is kept
    assert remembered(files, ANTHROPIC_API_KEY="key") is False
    assert remembered(files, ANTHROPIC_API_KEY="key", CLAUDE_CODE_USE_BEDROCK="1")
    assert remembered(files, ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL="http://127.0.0.1:1")
    assert not remembered(
        files, ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="https://api.anthropic.com"
    )
    back = b'{"env": {"ANTHROPIC_BASE_URL": "https://api.anthropic.com", "ANTHROPIC_API_KEY": "k"}}'
    own = {**files, "/home/ann/.claude/settings.json": back}
    assert not remembered(own, ANTHROPIC_BASE_URL="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (f"{MANAGED}.json", b'{"policyHelper": {"path": "/x"}}'),
        (f"{MANAGED}.json", b'{"policyHelpers": {"linux": {"path": "/x"}}}'),
        (f"{MANAGED}.d/*.json", b'a.json\0{}\0b.json\0{"policyHelper": {"path": "/x"}}\0'),
    ],
)
def test_an_answer_is_not_remembered_where_a_program_computes_the_settings(
    path: str, content: bytes
) -> None:
    elsewhere = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    assert remembered({}, **elsewhere)
    assert not remembered({path: content}, **elsewhere)
    assert not remembered({}, "--managed-settings={}", **elsewhere)


def test_a_prompt_that_leaves_the_screen_before_the_tools_are_there_is_reported() -> None:
    typed = CLAUDE.plan(request(mode=Mode.TERMINAL), grant(), Facts(), Confirmed())
    given_prompt = CLAUDE.plan(request("hi", mode=Mode.TERMINAL), grant(), Facts(), Confirmed())
    assert not isinstance(typed, Preflight)
    assert not isinstance(given_prompt, Preflight)
    assert not any("before it has loaded" in text for text in typed.warnings)
    assert any("before it has loaded" in text for text in given_prompt.warnings)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("mcp", "list"), "claude mcp"),
        (("--bg", "hi"), "--bg the conversation runs elsewhere"),
        (("--cloud=x",), "--cloud the conversation runs elsewhere"),
        (("--output-format", "json"), "--output-format=stream-json"),
    ],
)
def test_what_amux_could_not_bind_is_refused_with_memory_and_passed_on_without(
    arguments: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(BadArguments, match=reason):
        CLAUDE.plan(request(*arguments), grant(), Facts())
    plan = planned(CLAUDE, request(*arguments, mode=Mode.PASSTHROUGH), None)
    assert plan.argv[1 : 1 + len(arguments)] == arguments


@pytest.mark.parametrize(
    ("printed", "version"),
    [("2.1.197 (Claude Code)\n", "2.1.197"), ("warn\n2.1.332-b1 (Claude Code)", "2.1.332-b1")],
)
def test_the_version_is_read(printed: str, version: str) -> None:
    assert CLAUDE.parse_version(printed) == version


@pytest.mark.parametrize("printed", ["", "1.2.3", "claude: not found"])
def test_another_programs_version_is_refused(printed: str) -> None:
    with pytest.raises(UnknownVersion, match="--executable"):
        CLAUDE.parse_version(printed)


def test_a_version_that_is_too_old_is_refused_for_a_bound_launch_only() -> None:
    old = request(version="2.1.111")
    with pytest.raises(UnsupportedVersion, match=r"2\.1\.111 is too old.*2\.1\.112"):
        CLAUDE.plan(old, grant(), Facts())
    assert planned(CLAUDE, old, None).warnings == ()


@pytest.mark.parametrize("version", ["2.1.196", "2.1.333", "3.0.0"])
def test_a_version_that_was_not_tried_is_launched_with_a_warning(version: str) -> None:
    plan = planned(CLAUDE, request(version=version), grant())
    assert any(f"{version} is outside 2.1.197 to 2.1.332" in text for text in plan.warnings)


def answer(request_id: str, body: dict[str, Any]) -> dict[str, Any]:
    response = {"subtype": "success", "request_id": request_id, "response": body}
    return {"type": "control_response", "response": response}


def asking(settings_body: dict[str, Any], usage: dict[str, Any] | None = None) -> ScriptedChannel:
    """Return a Claude with these settings, our server connected, and this context usage."""
    bodies = {
        "get_settings": settings_body,
        "mcp_status": {"mcpServers": [{"name": "amux", "status": "connected"}]},
        "get_context_usage": usage,
        "initialize": {},
    }

    def script(sent: dict[str, Any]) -> list[dict[str, Any]]:
        body = bodies[sent["request"]["subtype"]]
        assert body is not None, "asked without a doubt"
        return [answer(sent["request_id"], body)]

    return ScriptedChannel(script)


def talk(off: object, server: str | None, usage: dict[str, Any] | None = None) -> ScriptedChannel:
    sources = [
        {"source": "flagSettings", "settings": {"env": {SWITCH: "1"}}},
        {"source": "policySettings", "settings": {"env": {SWITCH: off}}},
    ]

    def script(sent: dict[str, Any]) -> list[dict[str, Any]]:
        if sent["request"]["subtype"] == "get_settings":
            body = {"effective": {"env": {SWITCH: off}}, "sources": sources}
            return [{"type": "system"}, answer("stranger", {}), answer(sent["request_id"], body)]
        if sent["request"]["subtype"] == "get_context_usage" and usage is not None:
            return [answer(sent["request_id"], usage)]
        servers = [] if server is None else [{"name": "amux", "status": server}]
        return [answer(sent["request_id"], {"mcpServers": servers})]

    return ScriptedChannel(script)


def test_the_agents_own_answers_become_evidence_and_other_messages_stay() -> None:
    channel = talk("1", "connected")
    asked = request()
    confirmed = CLAUDE.handshake(channel, asked, grant(), planned(CLAUDE, asked, grant()))
    assert [(one.control, one.observed) for one in confirmed.evidence] == [
        ("auto memory", "off"),
        ("memory tools", "connected"),
        ("protocol in sub-agents", "appended"),
    ]
    assert confirmed.instructions == PROTOCOL
    assert channel.receive(deadline=1) == {"type": "system"}


@pytest.mark.parametrize("seen", ["0", "no", "2", "", 1, True, None])
def test_anything_but_a_value_that_claude_takes_for_true_fails_and_names_the_layer_that_set_it(
    seen: object,
) -> None:
    asked = request()
    plan = planned(CLAUDE, asked, grant())
    with pytest.raises(NotConfirmed, match="policySettings sets it last"):
        CLAUDE.handshake(talk(seen, "connected"), asked, grant(), plan)
    with pytest.raises(NotConfirmed) as caught:
        CLAUDE.confirm_preflight(talk(seen, None), asked, grant())
    assert caught.value.answer == json.dumps(seen)


@pytest.mark.parametrize("seen", ["1", "true", "YES", " on "])
def test_each_value_that_switches_claudes_memory_off_is_told_as_it_is(seen: str) -> None:
    asked = request()
    confirmed = CLAUDE.handshake(
        talk(seen, "connected"), asked, grant(), planned(CLAUDE, asked, grant())
    )
    off = confirmed.evidence[0]
    assert (off.control, off.observed) == ("auto memory", "off")
    assert off.source.endswith(f"={seen}")


def test_an_agent_that_knows_no_such_question_is_not_confirmed() -> None:
    def refuse(sent: dict[str, Any]) -> list[dict[str, Any]]:
        response = {"subtype": "error", "request_id": sent["request_id"], "error": "Unsupported"}
        return [{"type": "control_response", "response": response}]

    with pytest.raises(NotConfirmed, match="Unsupported"):
        CLAUDE.confirm_preflight(ScriptedChannel(refuse), request(), grant())


@pytest.mark.parametrize("status", [None, "failed", "disabled"])
def test_tools_that_did_not_load_fail_a_fresh_launch_and_warn_on_a_resume(
    status: str | None,
) -> None:
    asked = request()
    plan = planned(CLAUDE, asked, grant())
    with pytest.raises(ToolsNotLoaded, match=status or "absent"):
        CLAUDE.handshake(talk("1", status), asked, grant(), plan)
    resumed = CLAUDE.handshake(talk("1", status), asked, grant(instructions="x"), plan)
    assert any("has not loaded" in text for text in resumed.warnings)


def test_a_preflight_is_also_asked_whether_the_tools_may_be_loaded() -> None:
    passing = CLAUDE.confirm_preflight(talk("1", "failed"), request(), grant())
    assert [one.observed for one in passing.evidence] == ["off", "allowed", "appended"]
    with pytest.raises(ToolsNotLoaded, match="amux is absent"):
        CLAUDE.confirm_preflight(talk("1", None), request(), grant())
    resumed = CLAUDE.confirm_preflight(talk("1", None), request(), grant(instructions="x"))
    assert any("leaves the memory tools out" in text for text in resumed.warnings)


def test_where_the_context_is_asked_for_before_the_first_turn_native_memory_in_it_fails() -> None:
    doubtful, memory = request("--agent", "reader"), "/home/ann/.claude/memory/MEMORY.md"
    tool, mine = {"name": "mcp__amux__search"}, {"type": "AutoMem", "path": memory}
    with_it = {"mcpTools": [tool], "memoryFiles": [mine]}
    without = {"mcpTools": [tool], "memoryFiles": [{"type": "Project", "path": "/p/CLAUDE.md"}]}
    plan = planned(CLAUDE, doubtful, grant())
    fine = CLAUDE.handshake(talk("1", "connected", without), doubtful, grant(), plan)
    assert "connected, 1 offered" in [one.observed for one in fine.evidence]
    with pytest.raises(NotConfirmed, match=memory):
        CLAUDE.handshake(talk("1", "connected", with_it), doubtful, grant(), plan)
    with pytest.raises(NotConfirmed, match=memory):
        CLAUDE.confirm_preflight(talk("1", "failed", with_it), doubtful, grant())


@pytest.mark.parametrize("option", ["--append-system-prompt", "--settings"])
def test_bytes_that_are_no_text_are_refused(option: str) -> None:
    value = b'{"a": "\xff"}'.decode("utf-8", "surrogateescape")
    with pytest.raises(BadArguments, match=f"the value of {option} is not UTF-8"):
        CLAUDE.plan(request(option, value), grant(), Facts())


def test_a_text_that_may_have_been_cut_is_refused() -> None:
    with pytest.raises(BadArguments, match="1 MiB"):
        CLAUDE.plan(
            request("--append-system-prompt-file", NOTES), grant(), Facts({NOTES: b"x" * 2**20})
        )


def test_the_init_event_is_evidence_and_contradicts_where_it_names_a_memory_folder() -> None:
    init = {
        "type": "system",
        "subtype": "init",
        "mcp_servers": [{"name": "amux", "status": "connected"}],
        "tools": ["Bash", "mcp__amux__amux_memory_get"],
    }
    assert [one.observed for one in CLAUDE.on_message(init)] == ["off", "connected", "1"]
    assert CLAUDE.on_message({"type": "assistant"}) == ()
    with pytest.raises(NotConfirmed, match="/memory/"):
        CLAUDE.on_message(init | {"memory_paths": {"auto": "/home/ann/.claude/memory/"}})


WORDS = (
    "-p -c -r -rX -- - hi --resume --settings --settings={} --mcp-config --unknown "
    "--append-system-prompt --append-system-prompt=a"
)


@given(st.lists(st.sampled_from(WORDS.split(" "))).map(tuple))
def test_reading_arguments_loses_and_reorders_nothing(arguments: tuple[str, ...]) -> None:
    items = argv.parse(arguments)
    assert tuple(word for item in items for word in item.words) == arguments
    assert argv.compose(items) == arguments


def control_request(subtype: str, **fields: object) -> dict[str, Any]:
    return {"type": "control_request", "request_id": "7", "request": {"subtype": subtype, **fields}}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (
            control_request("initialize", appendSystemPrompt="be brief", systemPromptSnapshot=True),
            control_request("initialize", appendSystemPrompt=FROZEN, systemPromptSnapshot=False),
        ),
        (
            control_request("apply_flag_settings", settings={"env": {"A": "1"}, "model": "m"}),
            control_request(
                "apply_flag_settings", settings={"env": {"A": "1", SWITCH: "1"}, "model": "m"}
            ),
        ),
        (control_request("update_settings", settings={"env": {"A": "1"}, "agent": None}),) * 2,
        (control_request("apply_flag_settings", settings={"permissions": {"deny": ["Bash"]}}),) * 2,
        (control_request("initialize", hooks={}, sdkMcpServers=["mine"]),) * 2,
        (control_request("interrupt"),) * 2,
        (control_request("mcp_set_servers", servers={"mine": {}}),) * 2,
        (control_request("mcp_toggle", serverName="amux", enabled=True),) * 2,
        ({"type": "update_environment_variables", "variables": {"A": "1"}},) * 2,
        ({"type": "user", "message": {"role": "user", "content": "hi"}},) * 2,
    ],
)
def test_a_supervisors_own_requests_are_held_to_the_launch(
    sent: dict[str, Any], kept: dict[str, Any]
) -> None:
    frozen = FROZEN if "be brief" not in json.dumps(sent) else f"{FROZEN}, be brief"
    expected = json.loads(json.dumps(kept).replace(json.dumps(FROZEN), json.dumps(frozen)))
    assert CLAUDE.rewrite_request(sent["type"], sent, frozen) == expected


@pytest.mark.parametrize(
    "sent",
    [
        control_request("initialize", appendSystemPrompt="something else"),
        control_request("initialize", appendSubagentSystemPrompt="x"),
        control_request("apply_flag_settings", settings={"env": {SWITCH: "0"}}),
        control_request("apply_flag_settings", settings={"autoMemoryEnabled": True}),
        control_request("apply_flag_settings", settings={"agent": "reviewer"}),
        control_request("apply_flag_settings", settings={"permissions": {"deny": ["mcp__*"]}}),
        control_request("apply_flag_settings", settings={"deniedMcpServers": []}),
        control_request("update_settings", settings={"permissions": {"deny": ["mcp__amux"]}}),
        control_request("initialize", sdkMcpServers=["mine", "amux"]),
        control_request("mcp_set_servers", servers={"amux": {}}),
        control_request("mcp_toggle", serverName="amux", enabled=False),
        {"type": "update_environment_variables", "variables": {SWITCH: ""}},
    ],
)
def test_a_request_that_would_undo_a_control_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(BadArguments):
        CLAUDE.rewrite_request(sent["type"], sent, FROZEN)
