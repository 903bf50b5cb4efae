"""Which session Pi's own arguments mean, by its files; and what a session file shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from amux.providers.base import Facts, Mode, NativeResume, Sighting, TranscriptPart
from amux.providers.pi import PiProvider
from fixtures.requests import FRESH, PROTOCOL, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.providers.base import AgentRequest

PI = PiProvider()
AGENT = "/home/ann/.pi/agent"
USUAL = f"{AGENT}/sessions/--home-ann-project--"
ONE = "0b6e5c1c-9a0e-4b9b-8f5e-000000000001"
TWO = "0b6e5c1c-9a0e-4b9b-8f5e-000000000002"
TIME = "2026-11-30T10-00-00-000Z"


def header(native_id: str, cwd: str = "/home/ann/project") -> bytes:
    first = {"type": "session", "version": 3, "id": native_id, "cwd": cwd}
    return json.dumps(first).encode() + b'\n{"type": "message"}\n'


def listed(*names: str) -> bytes:
    """List a folder, the first name the newest."""
    return b"".join(f"{name}\t10\t{100 - at}\n".encode() for at, name in enumerate(names))


def found(asked: AgentRequest, files: Mapping[str, bytes]) -> NativeResume | None:
    """Answer as the launcher does: read what is asked for, until there is an answer."""
    named = PI.find_resume(asked.arguments)
    assert named is not None
    facts = Facts()
    for _ in range(8):
        answer = PI.resolve_resume(asked, named, facts)
        if not isinstance(answer, tuple):
            return answer
        assert not set(answer) & set(facts.files)
        facts = Facts({**facts.files, **{path: files.get(path) for path in answer}})
    raise AssertionError(answer)


def pi(*arguments: str, version: str = "1.6.0", **changes: Any) -> AgentRequest:  # noqa: ANN401
    return request(*arguments, version=version, **changes)


FILES = {
    f"{USUAL}/": listed("notes.txt", "broken.jsonl", f"{TIME}_{TWO}.jsonl", f"{TIME}_{ONE}.jsonl"),
    f"{USUAL}/broken.jsonl": b"no header\n",
    f"{USUAL}/{TIME}_{ONE}.jsonl": header(ONE),
    f"{USUAL}/{TIME}_{TWO}.jsonl": header(TWO),
}


def of(native_id: str, folder: str = USUAL, **changes: Any) -> NativeResume:  # noqa: ANN401
    path = f"{folder}/{TIME}_{native_id}.jsonl"
    return NativeResume(native_id=native_id, aliases=(path,), place=path, **changes)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--continue",), of(TWO)),
        (("-c", "--session-id", ONE), of(TWO)),
        (("--session", ONE), of(ONE)),
        (("--session", "0b6e"), of(TWO)),
        (("--fork", ONE[:-1] + "1"), of(ONE, fork=True)),
        (("--session-id", ONE), of(ONE)),
        (("--session-id", ONE[:-1]), None),
        (("--session", "abc"), NativeResume(native_id="abc")),
        (("--session", f"{USUAL}/{TIME}_{ONE}.jsonl"), of(ONE)),
        (("--session", f"~/.pi/agent/sessions/--home-ann-project--/{TIME}_{ONE}.jsonl"), of(ONE)),
        (("--session", "nowhere.jsonl"), None),
        (("--session", f"{USUAL}/broken.jsonl"), None),
        (("--resume",), NativeResume(native_id="")),
    ],
)
def test_the_session_is_found_however_it_is_named(
    arguments: tuple[str, ...], expected: NativeResume | None
) -> None:
    assert found(pi(*arguments), FILES) == expected


def test_a_file_whose_name_says_another_id_is_known_by_both() -> None:
    path = f"{USUAL}/{FRESH}.jsonl"
    files = {f"{USUAL}/": listed(f"{FRESH}.jsonl"), path: header(ONE)}
    expected = NativeResume(native_id=ONE, aliases=(path,), place=path)
    assert found(pi("-c", version="0.74.2"), files) == expected


def test_where_there_is_nothing_to_continue_a_new_conversation_begins() -> None:
    assert found(pi("--continue"), {}) is None
    assert found(pi("--continue"), {f"{USUAL}/": listed("broken.jsonl")}) is None


@pytest.mark.parametrize(
    "asked",
    [
        pi("-c", "--session-dir", "/kept"),
        pi("-c", environment={"PI_CODING_AGENT_SESSION_DIR": "/kept"}),
        pi("-c", mode=Mode.TERMINAL),
    ],
)
def test_a_chosen_folder_counts_and_in_it_only_sessions_of_this_folder_of_work(
    asked: AgentRequest,
) -> None:
    files = {
        "/home/ann/project/.pi/settings.json": b'{"sessionDir": "/kept"}',
        f"{AGENT}/settings.json": b'{"sessionDir": "/other"}',
        "/kept/": listed(f"{TIME}_{TWO}.jsonl", f"{TIME}_{ONE}.jsonl"),
        f"/kept/{TIME}_{TWO}.jsonl": header(TWO, "/elsewhere"),
        f"/kept/{TIME}_{ONE}.jsonl": header(ONE),
    }
    assert found(asked, files) == of(ONE, "/kept")


def test_the_settings_of_a_folder_that_is_not_trusted_choose_nothing() -> None:
    files = {**FILES, "/home/ann/project/.pi/settings.json": b'{"sessionDir": "/kept"}'}
    assert found(pi("-c"), files) == of(TWO)


def test_a_session_file_is_named_by_its_id_or_is_the_id() -> None:
    named = PI.transcripts(pi(), ONE)
    assert named is not None
    assert named.main == f"{AGENT}/sessions/*/*_{ONE}.jsonl"
    chosen = PI.transcripts(pi("--session-dir", "kept"), ONE)
    assert chosen is not None
    assert chosen.main == f"/home/ann/project/kept/*_{ONE}.jsonl"
    own = PI.transcripts(pi(version="0.74.2"), "/kept/x.jsonl")
    assert own is not None
    assert own.main == "/kept/x.jsonl"
    assert PI.transcripts(pi("--no-session"), ONE) is None
    assert PI.transcripts(pi(), "*") is None


def part(*entries: dict[str, Any], **changes: Any) -> TranscriptPart:  # noqa: ANN401
    content = b"".join(json.dumps(one).encode() + b"\n" for one in entries)
    fields: dict[str, Any] = {
        "path": "/kept/x.jsonl",
        "content": b"broken\n[]\n" + content,
        "protocol": PROTOCOL,
        "instructions": f"Be brief.\n\n{PROTOCOL}",
        "ours": True,
    }
    return TranscriptPart(**{**fields, **changes})


def system(content: str = "", **sections: str | None) -> dict[str, Any]:
    message = {"role": "system", "content": content, "sections": sections}
    return {"type": "message", "message": message}


ADDED = f"<addendum>\n{PROTOCOL.strip()}\n</addendum>"
ANSWER = {"type": "message", "message": {"role": "assistant", "stopReason": "stop"}}
CALL = {"type": "message", "message": {"role": "assistant", "stopReason": "toolUse"}}


def prompt(seen: tuple[Sighting, ...]) -> list[tuple[str, int, bool]]:
    return [(one.observed, one.turn, bool(one.contradicts)) for one in seen]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([system(preamble="You are", addendum=ADDED), CALL, ANSWER], [("once", 1, False)]),
        ([system(preamble="You are"), ANSWER, ANSWER], [("absent", 2, True)]),
        ([system(addendum=ADDED + ADDED)], [("2 times", 0, True)]),
        ([system(addendum=ADDED), ANSWER, system(addendum=None)], [("absent", 1, True)]),
        ([system(addendum=ADDED), ANSWER, system(skills="x")], [("once", 1, False)]),
        (
            [system(addendum=ADDED), {"type": "compaction", "systemMessage": {"content": "bare"}}],
            [("absent", 0, True)],
        ),
        ([ANSWER], []),
    ],
)
def test_the_prompt_that_pi_composed_holds_the_protocol_once(
    entries: list[dict[str, Any]], expected: list[tuple[str, int, bool]]
) -> None:
    assert prompt(PI.read_transcript(part(*entries))) == expected


def test_a_later_part_that_does_not_touch_the_prompt_says_nothing_of_it() -> None:
    assert PI.read_transcript(part(system(skills="x"), ANSWER, from_start=False)) == ()
    (seen,) = PI.read_transcript(part(system(addendum=ADDED), ANSWER, from_start=False))
    assert seen.observed == "once"


def test_what_pi_composed_without_amux_is_no_contradiction() -> None:
    assert PI.read_transcript(part(system(preamble="You are"), ANSWER, ours=False)) == ()


def test_a_session_whose_protocol_names_the_variable_is_read_by_its_own_text() -> None:
    own = PROTOCOL.replace("`amux", '`"$AMUX_CLI"')
    (seen,) = PI.read_transcript(part(system(addendum=own.strip()), ANSWER, instructions=own))
    assert seen.observed == "once"


def test_text_that_extensions_put_into_the_conversation_is_named() -> None:
    kit = {"type": "custom_message", "customType": "memkit", "content": "REMEMBERED"}
    (seen,) = PI.read_transcript(part(kit, ANSWER, kit, ours=False))
    assert (seen.control, seen.observed) == ("text of extensions", "memkit (2)")
