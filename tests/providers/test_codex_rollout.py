"""What a Codex rollout shows: native memory and the protocol, along compactions and roll-backs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from amux.providers.base import AgentRequest, Mode, Sighting, TranscriptPart
from amux.providers.codex import CodexProvider

CODEX = CodexProvider()
PROTOCOL = "# Memory (amux)\n\nUse it.\n"
NATIVE = "## Memory\n\n========= MEMORY_SUMMARY BEGINS =========\nold\n"
ID = "01a2"


def line(kind: str, **payload: Any) -> str:  # noqa: ANN401  # any JSON
    return json.dumps({"timestamp": "t", "type": kind, "payload": payload})


def developer(*texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": "developer", "content": content}


def told(*texts: str) -> str:
    return line("response_item", **developer(*texts))


def user(text: str) -> str:
    content = [{"type": "input_text", "text": text}]
    return line("response_item", type="message", role="user", content=content)


def event(name: str, **values: Any) -> str:  # noqa: ANN401  # any JSON
    return line("event_msg", type=name, **values)


BEGIN, END = event("task_started"), event("task_complete")
META = line("session_meta", id=ID, session_id=ID)


def see(*lines: str, **changes: Any) -> dict[str, Sighting]:  # noqa: ANN401  # any field
    values: dict[str, Any] = {
        "path": "/r.jsonl",
        "content": "".join(f"{one}\n" for one in lines).encode(),
        "protocol": PROTOCOL,
        "instructions": PROTOCOL,
        "ours": True,
        "native_id": ID,
    }
    return {
        one.control: one for one in CODEX.read_transcript(TranscriptPart(**{**values, **changes}))
    }


def shown(*lines: str, **changes: Any) -> tuple[str, str]:  # noqa: ANN401  # any field
    seen = see(*lines, **changes)
    return seen["native memory"].observed, seen["protocol"].observed


FIRST = (META, BEGIN, told("rules", f"users own\n\n{PROTOCOL}"), user("hi"), END)


def test_a_bound_conversation_has_no_native_memory_and_the_protocol_once() -> None:
    seen = see(*FIRST, BEGIN, user("again"), END)
    assert {(one.control, one.observed, one.turn) for one in seen.values()} == {
        ("native memory", "absent", 2),
        ("protocol", "once", 2),
    }
    assert not any(one.contradicts for one in seen.values())
    assert seen["protocol"].source == "rollout, developer items"


def test_native_memory_in_a_developer_item_contradicts_and_in_what_a_user_wrote_does_not() -> None:
    assert (
        "native memory into this conversation"
        in see(*FIRST, told(NATIVE))["native memory"].contradicts
    )
    assert shown(*FIRST, user(NATIVE), user(PROTOCOL)) == ("absent", "once")


@pytest.mark.parametrize(
    ("replacement", "later", "observed"),
    [
        ([developer(PROTOCOL)], (), "once"),
        ([developer("rules")], (), "absent"),
        ([developer(PROTOCOL)], (told(PROTOCOL),), "2 times"),
        ([], (told(PROTOCOL),), "once"),
        (None, (told("rules"),), "absent"),
    ],
)
def test_a_compaction_replaces_what_was_there(
    replacement: object, later: tuple[str, ...], observed: str
) -> None:
    compacted = line("compacted", message="m", replacement_history=replacement)
    seen = see(*FIRST, compacted, *later)["protocol"]
    assert seen.observed == observed
    assert bool(seen.contradicts) == (observed != "once")


def test_a_compaction_that_keeps_no_instructions_claims_nothing_before_the_next_turn() -> None:
    seen = see(*FIRST, line("compacted", message="m", replacement_history=[]))
    assert list(seen) == ["native memory"]


def test_turns_that_were_rolled_back_take_their_texts_with_them() -> None:
    again = (BEGIN, told(PROTOCOL), user("hi"), END)
    assert shown(*FIRST, event("thread_rolled_back", num_turns=1), *again)[1] == "once"
    assert shown(*FIRST, *again)[1] == "2 times"


def test_of_the_part_of_a_later_run_only_what_it_holds_is_claimed() -> None:
    later = (BEGIN, user("more"), END)
    assert shown(*later, from_start=False) == ("absent", "unchanged")
    assert shown(*later, told(PROTOCOL), from_start=False)[1] == "added once"
    assert shown(*FIRST, truncated=True)[1] == "added once"
    assert see(from_start=False) == {}


def test_what_was_written_without_amux_is_told_as_that() -> None:
    compacted = line("compacted", message="m", replacement_history=[developer(NATIVE, "rules")])
    seen = see(compacted, BEGIN, user("x"), END, from_start=False, ours=False)
    assert seen["native memory"].contradicts.endswith("while it went on without amux")
    assert seen["protocol"].contradicts == (
        "this conversation does not have the memory protocol, since it was compacted without amux"
    )
    assert {one.source for one in seen.values()} == {
        "rollout, developer items, written without amux"
    }
    assert {one.turn for one in seen.values()} == {0}


def child(source: object, *texts: str, **ids: str) -> tuple[str, ...]:
    names = {"id": "01a3", "parent_thread_id": ID, **ids}
    return (line("session_meta", source=source, **names), BEGIN, told(*texts), END)


def spawned(role: str | None = None, parent: str = ID) -> dict[str, Any]:
    return {"subagent": {"thread_spawn": {"parent_thread_id": parent, "agent_role": role}}}


def test_sub_agents_are_read_by_their_role() -> None:
    seen = see(*child(spawned(), PROTOCOL), main=False)
    assert {name: one.observed for name, one in seen.items()} == {
        "native memory in sub-agents (default)": "absent",
        "protocol in sub-agents (default)": "once",
    }
    seen = see(*child(spawned("mole"), NATIVE), main=False)
    assert [one.contradicts for one in seen.values()] == [
        "Codex put its native memory into a sub-agent (mole)",
        "a sub-agent (mole) does not have the memory protocol",
    ]
    seen = see(*child({"subagent": "review"}, "rules"), main=False)
    assert list(seen) == ["native memory in sub-agents (review)"]


def test_a_sub_agent_that_takes_the_conversation_along_may_have_its_parents_protocol_too() -> None:
    for ids, expected in (({"forked_from_id": ID}, ""), ({}, "2 times instead of once")):
        seen = see(*child(spawned(), PROTOCOL, f"own\n\n{PROTOCOL}", **ids), main=False)
        found = seen["protocol in sub-agents (default)"]
        assert found.observed == "2 times"
        assert found.contradicts.endswith(expected)
        assert bool(found.contradicts) is bool(expected)
    seen = see(*child(spawned(), "rules", forked_from_id=ID), main=False)
    assert seen["protocol in sub-agents (default)"].contradicts != ""


def test_a_sub_agent_of_a_sub_agent_belongs_to_the_conversation_and_others_do_not() -> None:
    deep = child(spawned(parent="01a4"), PROTOCOL, parent_thread_id="01a4", session_id=ID)
    assert len(see(*deep, main=False)) == 2
    other = child(spawned(parent="01a4"), NATIVE, parent_thread_id="01a4", session_id="01a4")
    assert see(*other, main=False) == {}
    assert (
        see(*child("exec", NATIVE, id="01a5", parent_thread_id="", session_id=""), main=False) == {}
    )
    assert (
        see(*child(spawned(parent=""), NATIVE, parent_thread_id=""), main=False, native_id="") == {}
    )


def test_what_is_no_rollout_is_skipped() -> None:
    assert shown("{", "[1]", '{"type": "response_item"}', *FIRST) == ("absent", "once")


BEGAN = 1_796_000_000.0
NEW = "01a22e6d-6b61-7182-8110-f31198a5e040"
OLD = "01a12000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("changes", "texts", "found"),
    [
        ({}, (PROTOCOL,), NEW),
        ({"id": OLD}, (PROTOCOL,), ""),
        ({"id": "t9"}, (PROTOCOL,), ""),
        ({"cwd": "/other"}, (PROTOCOL,), ""),
        ({"source": "vscode"}, (PROTOCOL,), ""),
        ({}, ("rules",), ""),
    ],
)
def test_of_a_run_that_tells_no_id_only_what_it_can_have_begun_is_its_conversation(
    changes: dict[str, str], texts: tuple[str, ...], found: str
) -> None:
    meta = line("session_meta", **{"id": NEW, "cwd": "/w", "source": "exec", **changes})
    part = TranscriptPart(
        path="/r.jsonl",
        content=f"{meta}\n{told(*texts)}\n".encode(),
        protocol=PROTOCOL,
        instructions=PROTOCOL,
        ours=True,
    )
    asked = AgentRequest(
        command=("codex",),
        version="0.171.0",
        arguments=("exec", "hi"),
        mode=Mode.PASSTHROUGH,
        cwd="/w",
        home="/home/ann",
        environment={},
        began=BEGAN,
    )
    assert CODEX.identify_conversation(asked, part) == found
    assert len(CODEX.candidate_transcripts(asked)) == 1
    for other in (
        replace(asked, mode=Mode.STREAM),
        replace(asked, arguments=()),
        replace(asked, arguments=("exec", "--ephemeral", "hi")),
    ):
        assert CODEX.candidate_transcripts(other) == ()
