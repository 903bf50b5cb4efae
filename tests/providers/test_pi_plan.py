"""Pi's command line: which texts a bound launch appends, and which conversation it opens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amux.providers.base import (
    AgentRequest,
    Facts,
    Framing,
    Grant,
    LaunchPlan,
    Mode,
    NativeResume,
    Tools,
)
from amux.providers.errors import BadArguments, RequestRefused, UnknownVersion, UnsupportedVersion
from amux.providers.pi import PiProvider
from amux.providers.pi import arguments as argv
from amux.providers.pi.appended_text import SEGMENT_BYTES
from fixtures.requests import (
    CONFIG,
    FRESH,
    PROTOCOL,
    ScriptedChannel,
    content,
    planned,
)
from fixtures.requests import grant as any_grant
from fixtures.requests import request as any_request

PI = PiProvider()
PROJECT = "/home/ann/project/.pi/APPEND_SYSTEM.md"
USER = "/home/ann/.pi/agent/APPEND_SYSTEM.md"
TRUST = "/home/ann/.pi/agent/trust.json"
LONG = "Use `amux memory search` " + "before you answer about earlier work. " * 10
TEXT = PROTOCOL + LONG


def request(*arguments: str, version: str = "1.6.0", **changes: Any) -> AgentRequest:  # noqa: ANN401  # any field
    return any_request(*arguments, version=version, **changes)


def grant(instructions: str | None = None) -> Grant:
    given_ = any_grant(Tools.CLI, instructions)
    return Grant(
        **{name: getattr(given_, name) for name in given_.__slots__ if name != "protocol"},
        protocol=TEXT,
    )


def appended(plan: LaunchPlan) -> str:
    """Return the one appended text, read from its file where it is one."""
    places = [at for at, word in enumerate(plan.argv) if word == "--append-system-prompt"]
    (at,) = places
    value = plan.argv[at + 1]
    if value.startswith(f"{CONFIG}/"):
        return content(plan, value.removeprefix(f"{CONFIG}/")).decode()
    return value


def test_the_protocol_follows_the_callers_texts_in_one_option() -> None:
    plan = planned(
        PI,
        request("--append-system-prompt", "a", "-p", "hi", "--append-system-prompt", "n.md"),
        grant(),
        {"/home/ann/project/n.md": b"from the file", USER: b"replaced, as in Pi alone"},
    )
    assert appended(plan) == plan.instructions == f"a\n\nfrom the file\n\n{TEXT}"
    assert plan.argv[-2:] == ("-p", "hi")


def test_the_agents_own_append_file_is_kept() -> None:
    plan = planned(PI, request(), grant(), {USER: b"be brief"})
    assert appended(plan) == f"be brief\n\n{TEXT}"


@pytest.mark.parametrize(
    ("version", "arguments", "files", "kept"),
    [
        ("0.74.2", (), {}, "project"),
        ("1.6.0", (), {}, "user"),
        ("1.6.0", ("--approve",), {}, "project"),
        ("1.6.0", ("-a", "-na"), {TRUST: b'{"/home/ann/project": true}'}, "user"),
        ("1.6.0", (), {TRUST: b'{"/home/ann": true}'}, "project"),
        ("1.6.0", (), {TRUST: b'{"/home/ann": true, "/home/ann/project": false}'}, "user"),
        (
            "1.6.0",
            (),
            {"/home/ann/.pi/agent/settings.json": b'{"defaultProjectTrust": "always"}'},
            "project",
        ),
        ("1.6.0", (), {TRUST: b"broken"}, "user"),
    ],
)
def test_a_projects_append_file_counts_where_pi_trusts_the_folder(
    version: str, arguments: tuple[str, ...], files: dict[str, bytes], kept: str
) -> None:
    both = {PROJECT: b"project", USER: b"user"}
    plan = planned(PI, request(*arguments, version=version), grant(), both | files)
    assert appended(plan) == f"{kept}\n\n{TEXT}"


def test_on_the_screen_an_undecided_folder_is_left_out_and_that_is_said() -> None:
    asked = request(mode=Mode.TERMINAL)
    plan = planned(PI, asked, grant(), {PROJECT: b"project"})
    assert appended(plan) == TEXT
    assert any("no decision yet" in text for text in plan.warnings)


@pytest.mark.parametrize("text", ["short", "a/b\nc", f"{'x' * SEGMENT_BYTES}/y"])
def test_a_text_that_could_name_a_file_goes_by_way_of_one(text: str) -> None:
    plan = planned(PI, request(), grant(instructions=text))
    assert plan.argv[plan.argv.index("--append-system-prompt") + 1].startswith(CONFIG)
    assert appended(plan) == text


def test_bytes_that_are_no_text_are_refused() -> None:
    value = b"\xff".decode("utf-8", "surrogateescape")
    with pytest.raises(BadArguments, match="not UTF-8"):
        PI.plan(request("--append-system-prompt", value), grant(), Facts())


def test_a_text_over_the_argument_limit_goes_by_way_of_a_file() -> None:
    text = "é" * 65_536
    plan = planned(PI, request("--append-system-prompt", text), grant())
    assert all(len(word.encode()) <= 131_071 for word in plan.argv)
    assert appended(plan) == f"{text}\n\n{TEXT}"


def test_the_protocol_names_the_variable_where_path_is_shadowed() -> None:
    shadow = {"/home/ann/.pi/agent/bin/amux": b"#!/bin/sh\n"}
    plan = planned(PI, request(), grant(), shadow)
    assert '`"$AMUX_CLI" memory search`' in appended(plan)
    assert "`amux memory" not in appended(plan)
    assert any("$AMUX_CLI" in text for text in plan.warnings)
    assert '"$AMUX_CLI"' not in appended(planned(PI, request(), grant()))


def test_the_agents_folder_may_be_somewhere_else() -> None:
    moved = request(environment={"PI_CODING_AGENT_DIR": "~/pi"})
    assert "/home/ann/pi/APPEND_SYSTEM.md" in PI.files_to_read(moved)
    assert USER in PI.files_to_read(request(environment={"PI_CODING_AGENT_DIR": ""}))


def test_a_new_conversation_gets_an_id_that_amux_knows() -> None:
    new = planned(PI, request(mode=Mode.PASSTHROUGH), grant())
    assert (new.argv[1:3], new.native_id) == (("--session-id", FRESH), FRESH)
    old = planned(PI, request(mode=Mode.PASSTHROUGH, version="0.74.2"), grant())
    path = f"/home/ann/.pi/agent/sessions/--home-ann-project--/{FRESH}.jsonl"
    assert (old.argv[1:3], old.native_id) == (("--session", path), path)
    stream = planned(PI, request(), grant())
    assert stream.argv[1:3] == ("--mode", "rpc")
    assert (stream.framing, stream.native_id) == (Framing.JSON_LINES, None)


@pytest.mark.parametrize("version", ["0.74.2", "1.6.0"])
def test_a_resume_and_a_fork_send_the_frozen_text(version: str) -> None:
    frozen = "the text of then\n" * 20
    resumed = request("-c", version=version, resume=NativeResume(native_id="abc"))
    plan = planned(PI, resumed, grant(frozen), {USER: b"new since"})
    assert appended(plan) == frozen
    assert "-c" not in plan.argv
    assert plan.argv[plan.argv.index("--session") + 1] == "abc"
    forked = request(
        version=version,
        mode=Mode.PASSTHROUGH,
        resume=NativeResume(native_id="abc", fork=True),
    )
    plan = planned(PI, forked, grant(frozen))
    assert appended(plan) == frozen
    assert plan.argv[plan.argv.index("--fork") + 1] == "abc"
    assert plan.native_id == (FRESH if version == "1.6.0" else None)
    assert bool(plan.warnings) == (version != "1.6.0")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("-p", "hi"), None),
        (("--session", "abc"), NativeResume(native_id="abc")),
        (
            ("--session", f"/s/2026_{FRESH}.jsonl"),
            NativeResume(native_id=FRESH, place=f"/s/2026_{FRESH}.jsonl"),
        ),
        (
            ("--session", "/s/2026-01-02T_mine_1.jsonl"),
            NativeResume(native_id="mine_1", place="/s/2026-01-02T_mine_1.jsonl"),
        ),
        (("--session-id", "abc", "-c"), NativeResume(native_id=argv.LATEST)),
        (("--fork", "abc", "--session-id", "new"), NativeResume(native_id="abc", fork=True)),
        (("--session", "abc", "--no-session"), None),
        (("--session-id", "abc"), NativeResume(native_id="abc")),
        (("--fork", "abc"), NativeResume(native_id="abc", fork=True)),
        (("-c",), NativeResume(native_id=argv.LATEST)),
        (("--continue",), NativeResume(native_id=argv.LATEST)),
        (("-r",), NativeResume(native_id="")),
        (("--append-system-prompt", "--continue"), None),
        (("-p", "---resume"), None),
        (("--", "--resume"), None),
    ],
)
def test_a_native_resume_is_found_in_every_spelling(
    arguments: tuple[str, ...], found: NativeResume | None
) -> None:
    assert PI.find_resume(arguments) == found


@pytest.mark.parametrize("arguments", [("--session", "abc", "-p", "hi"), ("-c", "-p", "hi")])
def test_an_unknown_native_conversation_is_resumed_exactly_as_the_caller_asked(
    arguments: tuple[str, ...],
) -> None:
    resume = PI.find_resume(arguments)
    plan = planned(PI, request(*arguments, mode=Mode.PASSTHROUGH, resume=resume), None)
    assert plan.argv == ("/opt/agent", *arguments)
    assert (plan.environment, plan.files, plan.instructions) == ((), (), None)
    assert plan.native_id == ("abc" if "abc" in arguments else None)


def test_a_stream_in_another_mode_and_a_subcommand_are_refused() -> None:
    with pytest.raises(BadArguments, match="--mode json"):
        PI.plan(request("--mode", "json"), grant(), Facts())
    with pytest.raises(BadArguments, match="pi install"):
        PI.plan(request("install", "x", mode=Mode.PASSTHROUGH), grant(), Facts())


def test_versions_are_read_refused_and_warned_of() -> None:
    assert PI.parse_version("1.6.0\n") == "1.6.0"
    with pytest.raises(UnknownVersion):
        PI.parse_version("codex-cli 0.171.0")
    with pytest.raises(UnsupportedVersion, match=r"0\.59\.0 is too old.*0\.60\.0"):
        PI.plan(request(version="0.59.0"), grant(), Facts())
    plan = planned(PI, request(version="1.7.0"), grant())
    assert any("1.7.0 is outside 0.74.2 to 1.6.0" in text for text in plan.warnings)


def rpc(sent: dict[str, Any]) -> list[dict[str, Any]]:
    data: dict[str, Any] = {"sessionId": "s-1"}
    if sent["type"] == "get_commands":
        info = {"path": "/home/ann/.pi/agent/extensions/recall.ts"}
        builtin = {"path": "builtin:mcp"}
        inline = {"path": "<inline:llama.cpp>"}
        data = {
            "commands": [
                {"name": "recall", "source": "extension", "sourceInfo": info},
                {"name": "mcp", "source": "extension", "sourceInfo": builtin},
                {"name": "llama", "source": "extension", "sourceInfo": inline},
                {"name": "review", "source": "prompt", "sourceInfo": info},
            ]
        }
    reply = {"type": "response", "id": sent["id"], "success": True, "data": data}
    return [{"type": "extension_ui_request"}, reply]


def test_rpc_mode_tells_the_conversations_id_and_the_loaded_extensions() -> None:
    channel = ScriptedChannel(rpc)
    confirmed = PI.handshake(channel, request(), grant(), planned(PI, request(), grant()))
    assert confirmed.native_id == "s-1"
    (seen,) = confirmed.evidence
    assert "recall.ts (recall)" in seen.observed
    assert "builtin:mcp (mcp)" in seen.observed
    assert "review" not in seen.observed
    (warning,) = confirmed.warnings
    assert "recall.ts" in warning
    assert "builtin" not in warning
    assert "inline" not in warning
    assert channel.receive(deadline=1) == {"type": "extension_ui_request"}


def test_an_extension_that_was_named_before_the_start_is_not_warned_of_again() -> None:
    files = {"/home/ann/.pi/agent/extensions/": b"recall.ts\t10\t1\nREADME.md\t1\t1\n"}
    plan = planned(PI, request(), grant(), files)
    (warning,) = plan.warnings
    assert "recall.ts" in warning
    assert "README" not in warning
    assert PI.handshake(ScriptedChannel(rpc), request(), grant(), plan).warnings == ()


def test_entries_of_the_settings_that_switch_an_extension_off_are_not_named() -> None:
    off = b'{"extensions": ["-builtin:mcp", "!x.ts", "+builtin:mcp", "y.ts"]}'
    files = {"/home/ann/.pi/agent/settings.json": off}
    (warning,) = planned(PI, request(), grant(), files).warnings
    assert warning.endswith("['y.ts']")


def test_the_extensions_that_pi_would_find_are_named_in_every_mode() -> None:
    files = {
        "/home/ann/.pi/agent/extensions/": b"recall.ts\t10\t1\n",
        "/home/ann/project/.pi/extensions/": b"notes\t10\t1\n",
        "/home/ann/.pi/agent/settings.json": b'{"packages": ["npm:keeper", {"source": "git:x"}]}',
    }
    everything = request("-e", "mine.ts", mode=Mode.TERMINAL)
    (warning,) = planned(PI, everything, grant(), files).warnings
    assert all(name in warning for name in ("mine.ts", "recall.ts", "notes", "keeper", "git:x"))
    explicit = request("-e", "mine.ts", "-ne", mode=Mode.TERMINAL)
    (warning,) = planned(PI, explicit, grant(), files).warnings
    assert "recall.ts" not in warning
    (warning,) = planned(PI, request(), grant(), files).warnings
    assert "recall.ts" in warning
    assert planned(PI, request(mode=Mode.TERMINAL), grant()).warnings == ()


def test_an_error_in_rpc_mode_is_raised_with_the_agents_words() -> None:
    channel = ScriptedChannel(
        lambda sent: [{"type": "response", "id": sent["id"], "success": False, "error": "no"}]
    )
    with pytest.raises(RequestRefused, match=r"get_state.*no"):
        PI.handshake(channel, request(), None, planned(PI, request(), None))


WORDS = "-p -c -r -- --- hi @f --session --fork --append-system-prompt --mode --unknown"


@given(st.lists(st.sampled_from(WORDS.split(" "))).map(tuple))
def test_reading_arguments_loses_and_reorders_nothing(arguments: tuple[str, ...]) -> None:
    assert argv.words(argv.parse(arguments)) == arguments


def test_facts_are_asked_for_texts_that_may_be_files_only() -> None:
    asked = PI.files_to_read(
        request("--append-system-prompt", "n.md", "--append-system-prompt", LONG)
    )
    assert "/home/ann/project/n.md" in asked
    assert not any("earlier work" in path for path in asked)
