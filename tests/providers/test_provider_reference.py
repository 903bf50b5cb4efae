"""docs/provider.md says what the code says, and its examples run."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from amux.providers.base import (
    NATIVE_MEMORY,
    Confirmed,
    Facts,
    Framing,
    Mode,
    NativeResume,
    Preflight,
    Provider,
    Tools,
    TranscriptPart,
    TurnEvent,
)
from amux.providers.errors import BadArguments, NotConfirmed, UnknownVersion, UnsupportedVersion
from fixtures import provider_reference
from fixtures.complete_provider import LarkProvider
from fixtures.requests import CONFIG, PROTOCOL, ScriptedChannel, content, grant, planned, request

if TYPE_CHECKING:
    from pathlib import Path

LARK = LarkProvider()
PHASES = ("before memory", "resumed", "planning", "pre-flight", "starting", "running", "ended")
SETTINGS = "/home/ann/.lark/settings.json"
GRANT = grant(Tools.CLI)


def methods() -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(Provider).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def lark(*, notes: object = False) -> ScriptedChannel:
    answers: dict[str, dict[str, Any]] = {
        "talk": {"answer": "talk", "id": "t1"},
        "notes": {"answer": "notes", "notes": notes},
    }
    return ScriptedChannel(lambda sent: [{"type": "log"}, answers[sent["ask"]]])


def part(text: str, *, ours: bool = True) -> TranscriptPart:
    return TranscriptPart(
        path="/t.jsonl", content=text.encode(), protocol=PROTOCOL, instructions="I", ours=ours
    )


def test_the_page_is_what_the_code_says() -> None:
    text = provider_reference.PAGE.read_text()
    assert provider_reference.page(text) == text, "run python -m fixtures.provider_reference"


def test_the_command_tells_a_page_that_differs(tmp_path: Path) -> None:
    text = provider_reference.PAGE.read_text()
    changed = tmp_path / "page.md"
    changed.write_text(text.replace("def find_resume(", "def found_resume("))
    script = "import sys; from pathlib import Path; from fixtures import provider_reference as r; "
    script += f"r.PAGE = Path({str(changed)!r}); sys.exit(r.main())"
    command = [sys.executable, "-c", script]
    assert subprocess.run([*command, "--check"], check=False, capture_output=True).returncode == 1
    assert subprocess.run(command, check=False).returncode == 0
    assert changed.read_text() == text


def test_each_method_says_when_it_is_called_and_stands_in_that_order() -> None:
    first = []
    for name, method in methods().items():
        text = inspect.getdoc(method) or ""
        when = re.search(r"^When: (.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
        assert when, name
        named = [phase for phase in PHASES if phase in when[1]]
        assert named, f"{name}: {when[1]}"
        first.append(PHASES.index(named[0]))
    assert first == sorted(first)


def test_the_example_has_every_method_with_the_signature_of_its_base() -> None:
    for name, method in methods().items():
        example = vars(LarkProvider)[name]
        assert inspect.signature(example) == inspect.signature(method), name


def test_the_example_finds_what_is_resumed() -> None:
    assert LARK.find_resume(("--talk=t1",)) == NativeResume(native_id="t1")
    last = LARK.find_resume(("--last",))
    assert last == NativeResume(native_id="")
    assert LARK.find_resume(("hello",)) is None
    asked = request("--last")
    talks = "/home/ann/.lark/talks/"
    assert LARK.resolve_resume(asked, last, Facts()) == (talks,)
    listed = Facts({talks: b"a.jsonl\t9\t100\nb.jsonl\t9\t99\n"})
    assert LARK.resolve_resume(asked, last, listed) == NativeResume(native_id="a")
    assert LARK.resolve_resume(asked, last, Facts({talks: b""})) is None
    named = NativeResume(native_id="t1")
    assert LARK.resolve_resume(asked, named, Facts()) == named


def test_the_example_reads_its_version() -> None:
    assert LARK.parse_version("lark 2.1.0\n") == "2.1.0"
    with pytest.raises(UnknownVersion):
        LARK.parse_version("wren 1.0.0")


def test_the_example_plans_with_the_files_that_it_asked_for() -> None:
    asked = request("hello")
    assert LARK.files_to_read(asked) == (SETTINGS,)
    facts = Facts({SETTINGS: b'{"instructions": "/i.md"}'})
    assert LARK.more_files_to_read(asked, facts) == ("/i.md",)
    assert LARK.more_files_to_read(asked, Facts()) == ()
    plan = planned(LARK, asked, GRANT, facts=Facts({**facts.files, "/i.md": b"Sing."}))
    assert plan.instructions == f"Sing.\n\n{PROTOCOL}"
    assert content(plan, "text.md").decode() == plan.instructions
    assert plan.argv == ("/opt/agent", "hello", "--no-notes", f"--text-file={CONFIG}/text.md")
    assert planned(LARK, asked, None).argv == ("/opt/agent", "hello")
    with pytest.raises(UnsupportedVersion, match="--no-notes"):
        LARK.plan(replace(asked, unknown=frozenset({"--no-notes"})), GRANT, Facts())


def test_the_example_sends_a_resumed_talk_its_frozen_text() -> None:
    asked = request("--last", resume=NativeResume(native_id="t1"))
    (search,) = LARK.files_to_search(asked)
    assert search.path.endswith("/talks/t1.jsonl")
    assert LARK.files_to_search(request()) == ()
    read = Facts(found=frozenset({search}))
    plan = planned(LARK, asked, grant(Tools.CLI, instructions="frozen"), facts=read)
    assert plan.instructions == "frozen"
    assert plan.argv[-1] == "--talk=t1"
    assert "--last" not in plan.argv
    assert "notes" in plan.warnings[0]


def test_the_example_asks_before_a_screen() -> None:
    asked = request(mode=Mode.TERMINAL)
    step = LARK.plan(asked, GRANT, Facts())
    assert isinstance(step, Preflight)
    confirmed = LARK.confirm_preflight(lark(), asked, GRANT)
    assert [one.observed for one in confirmed.evidence] == ["off"]
    plan = LARK.plan(asked, GRANT, Facts(), Confirmed())
    assert not isinstance(plan, Preflight)
    assert plan.framing is Framing.RAW
    with pytest.raises(NotConfirmed, match="true"):
        LARK.confirm_preflight(lark(notes=True), asked, GRANT)


def test_the_example_does_its_handshake_and_gives_back_what_others_wait_for() -> None:
    plan = planned(LARK, request(), GRANT)
    channel = lark()
    confirmed = LARK.handshake(channel, request(), GRANT, plan)
    assert (confirmed.native_id, confirmed.instructions) == ("t1", plan.instructions)
    assert list(channel.waiting) == [{"type": "log"}, {"type": "log"}]
    assert LARK.handshake(lark(), request(), None, plan).evidence == ()


def test_the_example_says_what_ends_it() -> None:
    assert LARK.shutdown(request()).lock_files == ("/home/ann/.lark/login.lock",)
    assert LARK.unknown_flag(request(), "lark: unknown flag --no-notes") == "--no-notes"
    assert LARK.unknown_flag(request("--no-notes"), "lark: unknown flag --no-notes") == ""
    assert not LARK.opens_conversation(("--help",))
    assert LARK.opens_conversation(("hello",))


def test_the_example_holds_a_supervisors_requests_to_the_launch() -> None:
    assert LARK.rewrite_request("open", {"talk": "t1"}, "I") == {"talk": "t1", "text": "I"}
    assert LARK.rewrite_request("say", {"x": 1}, "I") == {"x": 1}
    with pytest.raises(BadArguments) as refused:
        LARK.rewrite_request("settings", {"notes": True}, "I")
    assert LARK.error_response({"type": "settings"}, str(refused.value)) == {
        "answer": "settings",
        "error": str(refused.value),
    }
    LARK.check_request(lark(), "open", {"talk": "t1"}, frozenset({"t1"}))
    LARK.check_request(lark(), "open", {}, frozenset())
    with pytest.raises(BadArguments, match="t2"):
        LARK.check_request(lark(), "open", {"talk": "t2"}, frozenset({"t1"}))
    opened = LARK.on_response(lark(), "open", {"talk": "t2"}, request())
    assert opened == Confirmed(native_id="t2")
    assert LARK.on_response(lark(), "say", {}, request()) is None


def test_the_example_reads_what_is_said_while_it_runs() -> None:
    assert LARK.on_message({"type": "log"}) == ()
    with pytest.raises(NotConfirmed):
        LARK.on_message({"type": "notes"})
    assert LARK.context_request() == {"ask": "context"}
    (seen,) = LARK.read_context({"answer": "context", "notes": ["a"]}) or ()
    assert (seen.control, seen.observed) == (NATIVE_MEMORY, "present")
    assert LARK.read_context({"type": "log"}) is None
    kinds = [LARK.turn_event({"type": kind}) for kind in ("user", "done", "log")]
    assert kinds == [TurnEvent.BEGUN, TurnEvent.ENDED, None]


def test_the_example_settles_each_talk_of_its_screen_once() -> None:
    def settle(message: dict[str, Any] | None, *settled: str) -> Confirmed | None:
        return LARK.on_server_message(lark(), message, request(), GRANT, frozenset(settled))

    opened = {"type": "opened", "talk": "t3"}
    found = settle(opened)
    assert found is not None
    assert found.native_id == "t3"
    assert settle(opened, "t3") is settle(None) is None


def test_the_example_reads_its_transcripts() -> None:
    where = LARK.transcripts(request(), "t1")
    assert where is not None
    assert where.main == "/home/ann/.lark/talks/t1.jsonl"
    native, protocol = LARK.read_transcript(part(f'{{"type":"notes"}}\n{PROTOCOL}'))
    assert native.contradicts
    assert protocol.observed == "1 times"
    assert not LARK.read_transcript(part("", ours=False))[0].contradicts
    assert LARK.candidate_transcripts(request()) == ()
    piped = request(mode=Mode.PASSTHROUGH)
    assert LARK.candidate_transcripts(piped) == ("/home/ann/.lark/talks/*.jsonl",)
    first = json.dumps({"id": "t9", "cwd": piped.cwd, "text": "I"})
    assert LARK.identify_conversation(piped, part(f"{first}\n")) == "t9"
    assert LARK.identify_conversation(replace(piped, cwd="/x"), part(first)) == ""
