"""What a cell of the matrix comes to: every kind of difference has its own name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.matrix.cells import History, Seen, Sent, Way
from fixtures.matrix.verdict import DIFFERENT, Outcome, judge

MAIN = Sent(who="main", native=(), protocol=1, tools=5)
NATIVE = replace(MAIN, native=("the memory's text",), protocol=0, tools=0)
CHILD = Sent(who="child", native=(), protocol=1, tools=5)
BACKGROUND = Sent(who="background", native=(), protocol=0, tools=0)
WAY = Way(name="a way", prepare=lambda _: None)
BOUND = Seen(tools="mcp", sent=(MAIN,))
CONTROL = Seen(sent=(NATIVE,))
APPENDED = "protocol in sub-agents = by a hook (get_settings: no source stops hooks)"


def test_agreement_counts_only_where_the_run_without_amux_showed_native_memory() -> None:
    assert judge(WAY, BOUND, CONTROL).outcome is Outcome.OK
    assert judge(WAY, BOUND, Seen(sent=(replace(NATIVE, native=()),))).outcome is Outcome.NOT_SHOWN
    assert judge(WAY, BOUND, None).outcome is Outcome.NOT_SHOWN
    assert judge(WAY, BOUND, Seen(broken="it died")).outcome is Outcome.NOT_SHOWN
    plain = replace(WAY, native=False)
    assert judge(plain, BOUND, Seen(sent=(replace(NATIVE, native=()),))).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        ((replace(MAIN, native=("a section",)),), Outcome.FALSE_OFF),
        ((MAIN, replace(CHILD, native=("a section",))), Outcome.FALSE_OFF),
        ((MAIN, BACKGROUND), Outcome.FALSE_OFF),
        ((replace(MAIN, protocol=0),), Outcome.FALSE_PROTOCOL),
        ((MAIN, replace(MAIN, protocol=2)), Outcome.FALSE_PROTOCOL),
        ((replace(MAIN, tools=4),), Outcome.FALSE_TOOLS),
        ((replace(MAIN, shows=False),), Outcome.LOST),
        ((), Outcome.BROKEN),
    ],
)
def test_what_was_sent_against_the_report_is_a_difference(
    sent: tuple[Sent, ...], outcome: Outcome
) -> None:
    verdict = judge(WAY, replace(BOUND, sent=sent), CONTROL)
    assert verdict.outcome is outcome
    assert (outcome in DIFFERENT) is (outcome is not Outcome.BROKEN)


@pytest.mark.parametrize(
    ("said", "protocol", "outcome"),
    [
        (APPENDED, 1, Outcome.OK),
        (APPENDED, 0, Outcome.FALSE_CHILD),
        ("memoryMode = disabled (thread/memoryMode/set)", 1, Outcome.OK),
        ("memoryMode = disabled (thread/memoryMode/set)", 0, Outcome.FALSE_CHILD),
        ("protocol in sub-agents = not reached on the screen (Claude)", 0, Outcome.OK),
        ("protocol in sub-agents = not reached on the screen (Claude)", 1, Outcome.FALSE_CHILD),
    ],
)
def test_a_sub_agent_is_held_against_what_was_said_of_sub_agents(
    said: str, protocol: int, outcome: Outcome
) -> None:
    seen = replace(BOUND, said=(said,), sent=(MAIN, replace(CHILD, protocol=protocol)))
    control = replace(CONTROL, sent=(NATIVE, CHILD))
    assert judge(replace(WAY, child=True), seen, control).outcome is outcome


def test_what_a_warning_or_a_sighting_says_is_told_and_no_difference() -> None:
    role = replace(WAY, told="role")
    seen = replace(BOUND, sent=(MAIN, replace(CHILD, native=("a section",))))
    warned = replace(seen, warnings=("the role reviewer switches memory on",))
    assert judge(role, warned, CONTROL).outcome is Outcome.TOLD
    assert judge(WAY, warned, CONTROL).outcome is Outcome.FALSE_OFF
    sighted = replace(seen, contradicted=("native memory: it stands in the transcript",))
    assert judge(WAY, sighted, CONTROL).outcome is Outcome.TOLD
    other = replace(seen, contradicted=("memory tools: none is offered",))
    assert judge(WAY, other, CONTROL).outcome is Outcome.FALSE_OFF


def test_what_must_be_named_is_missed_where_no_warning_names_it() -> None:
    kit = replace(WAY, says="SessionStart")
    assert judge(kit, BOUND, CONTROL).outcome is Outcome.UNNAMED
    named = replace(BOUND, warnings=("a hook of SessionStart adds text",))
    assert judge(kit, named, CONTROL).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("code", "refusable", "outcome"),
    [
        ("unsupported_version", False, Outcome.REFUSED),
        ("native_memory_not_confirmed", True, Outcome.REFUSED),
        ("native_memory_not_confirmed", False, Outcome.FALSE_REFUSAL),
        ("agent_failed", True, Outcome.FALSE_REFUSAL),
    ],
)
def test_a_refusal_is_right_by_the_name_of_the_version_or_of_a_way_that_cannot_be_held(
    code: str, *, refusable: bool, outcome: Outcome
) -> None:
    way = replace(WAY, refusable=refusable)
    assert judge(way, Seen(refused=code), CONTROL).outcome is outcome


def test_without_memory_is_right_for_a_native_conversation_alone() -> None:
    unbound = Seen(unbound="no record of amux", sent=(NATIVE,))
    assert judge(replace(WAY, history=History.NATIVE), unbound, CONTROL).outcome is Outcome.OK
    assert judge(WAY, unbound, CONTROL).outcome is Outcome.FALSE_REFUSAL


def test_a_memory_that_never_worked_in_the_background_shows_nothing() -> None:
    way = replace(WAY, background=True)
    assert judge(way, BOUND, CONTROL).outcome is Outcome.NOT_SHOWN
    worked = replace(CONTROL, sent=(NATIVE, BACKGROUND))
    assert judge(way, BOUND, worked).outcome is Outcome.OK
