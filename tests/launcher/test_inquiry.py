"""When an agent is asked what its context holds, and who sees the answer."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import pytest

from amux.launcher.channel.context_query import Inquiry, open_inquiry
from amux.launcher.errors import DeadlinePassed
from amux.launcher.evidence import query_socket
from amux.launcher.evidence.query_socket import ask_at, open_desk
from amux.providers.claude import ClaudeProvider
from amux.providers.pi import PiProvider
from tests.launcher.agents_at_work import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from amux.providers.base import JsonObject, Sighting

USER: JsonObject = {"type": "user", "message": {"role": "user", "content": "hello"}}
INIT: JsonObject = {"type": "system", "subtype": "init"}
RESULT: JsonObject = {"type": "result", "subtype": "success"}
COMPACTED: JsonObject = {"type": "system", "subtype": "compact_boundary"}
MEMORY = "/home/ann/.claude/projects/p/memory/MEMORY.md"


def answer(*files: tuple[str, str], tools: int = 5) -> JsonObject:
    """Answer as Claude does."""
    usage = {
        "memoryFiles": [{"type": kind, "path": path} for kind, path in files],
        "mcpTools": [{"name": f"mcp__amux__{number}"} for number in range(tools)],
    }
    said = {"subtype": "success", "request_id": "amux-context", "response": usage}
    return {"type": "control_response", "response": said}


class Agent:
    """What a channel does with an inquiry; the agent's side is played by the test."""

    def __init__(self, idle: float = 0.0, queued: float = DEADLINE) -> None:
        self.questions: queue.Queue[JsonObject] = queue.Queue()
        self.seen: queue.Queue[tuple[Sighting, ...]] = queue.Queue()
        provider = ClaudeProvider()
        question = provider.context_request() or {}
        ask, told = self.questions.put, self.seen.put
        self.inquiry = Inquiry(provider, question, ask, told, idle=idle, queued=queued)

    def turn(self) -> None:
        """Take one turn."""
        self.inquiry.sent(USER)
        for message in (INIT, RESULT):
            assert not self.inquiry.came(message)

    def asked(self) -> JsonObject:
        """Return the next question."""
        return self.questions.get(timeout=DEADLINE)

    def answers(self, *files: tuple[str, str], tools: int = 5) -> dict[str, Sighting]:
        """Answer a question; return what was told of it."""
        assert self.inquiry.came(answer(*files, tools=tools))
        return {one.control: one for one in self.seen.get(timeout=DEADLINE)}


def test_it_is_asked_once_after_the_first_turn_and_says_after_which() -> None:
    agent = Agent()
    agent.turn()
    assert agent.asked()["request"] == {"subtype": "get_context_usage"}
    seen = agent.answers(("Project", "/srv/CLAUDE.md"), ("User", "/home/ann/.claude/CLAUDE.md"))
    assert {name: one.observed for name, one in seen.items()} == {
        "native memory": "absent",
        "instruction files": "Project /srv/CLAUDE.md, User /home/ann/.claude/CLAUDE.md",
        "memory tools": "5 offered",
    }
    assert {one.turn for one in seen.values()} == {1}
    assert not any(one.contradicts for one in seen.values())
    agent.turn()
    agent.inquiry.sent(USER)  # at work, so what is wanted now waits as well
    with pytest.raises(DeadlinePassed):
        agent.inquiry.ask(deadline=0.0)
    assert agent.questions.empty()


def test_after_a_compaction_it_is_asked_again() -> None:
    agent = Agent()
    agent.turn()
    agent.asked()
    agent.answers()
    agent.inquiry.sent(USER)
    assert not agent.inquiry.came(COMPACTED)
    assert not agent.inquiry.came(RESULT)
    agent.asked()
    assert agent.answers()["native memory"].turn == 2


def test_native_memory_and_missing_tools_contradict() -> None:
    agent = Agent()
    agent.turn()
    agent.asked()
    seen = agent.answers(("AutoMem", MEMORY), tools=0)
    assert seen["native memory"].observed == "present"
    assert MEMORY in seen["native memory"].contradicts
    assert seen["memory tools"].observed == "none offered"
    assert seen["memory tools"].contradicts


@pytest.mark.parametrize(
    "response",
    [
        {"subtype": "error", "error": "Unknown subtype"},
        {"subtype": "success", "response": {"categories": []}},
    ],
)
def test_a_version_that_does_not_tell_is_never_said_to_have_none(response: JsonObject) -> None:
    agent = Agent()
    agent.turn()
    agent.asked()
    said = {"request_id": "amux-context", **response}
    assert agent.inquiry.came({"type": "control_response", "response": said})
    (one,) = agent.seen.get(timeout=DEADLINE)
    assert (one.control, one.observed, one.contradicts) == ("native memory", "not offered", "")


def test_while_a_message_waits_for_its_turn_nothing_is_asked() -> None:
    agent = Agent(idle=DEADLINE)
    agent.inquiry.sent(USER)
    agent.inquiry.came(INIT)
    agent.inquiry.sent(USER)
    agent.inquiry.came(RESULT)
    wanted: queue.Queue[tuple[Sighting, ...]] = queue.Queue()
    asking = threading.Thread(target=lambda: wanted.put(agent.inquiry.ask(deadline=DEADLINE)))
    asking.start()
    agent.inquiry.came(INIT)
    assert agent.questions.empty()
    agent.inquiry.came(RESULT)
    agent.asked()  # at once, since somebody waits
    agent.answers()
    assert {one.turn for one in wanted.get(timeout=DEADLINE)} == {2}
    asking.join()
    assert agent.questions.empty()


def test_messages_that_a_turn_takes_along_leave_the_agent_idle_after_it() -> None:
    agent = Agent(queued=0.0)
    agent.inquiry.sent(USER)
    agent.inquiry.came(INIT)
    agent.inquiry.sent(USER)
    agent.inquiry.sent(USER)
    agent.inquiry.came(RESULT)
    agent.asked()
    assert agent.answers()["native memory"].turn == 1
    agent.turn()
    wanted: queue.Queue[tuple[Sighting, ...]] = queue.Queue()
    asking = threading.Thread(target=lambda: wanted.put(agent.inquiry.ask(deadline=DEADLINE)))
    asking.start()
    agent.asked()
    agent.answers()
    assert {one.turn for one in wanted.get(timeout=DEADLINE)} == {2}
    asking.join()


def test_a_program_that_goes_on_at_once_is_not_delayed_by_a_question() -> None:
    agent = Agent(idle=DEADLINE)
    agent.turn()
    agent.inquiry.sent(USER)
    agent.inquiry.came(RESULT)
    assert agent.questions.empty()


def test_an_answer_that_somebody_else_asked_for_stays_theirs() -> None:
    agent = Agent()
    assert not agent.inquiry.came(answer())
    agent.turn()
    agent.asked()
    theirs = {"subtype": "success", "request_id": "mine", "response": {}}
    assert not agent.inquiry.came({"type": "control_response", "response": theirs})
    agent.answers()


def test_an_agent_that_knows_no_such_question_is_not_asked() -> None:
    assert open_inquiry(PiProvider(), lambda _: None, lambda _: None) is None


def test_another_process_is_answered_at_the_runs_folder_under_any_path(tmp_path: Path) -> None:
    agent = Agent()
    run = tmp_path / ("x" * 120)
    run.mkdir()
    desk = open_desk(run, agent.inquiry)
    assert desk is not None
    assert ((run / "inquiry.sock").stat().st_mode & 0o777) == 0o600
    wanted: queue.Queue[tuple[Sighting, ...]] = queue.Queue()
    asking = threading.Thread(target=lambda: wanted.put(ask_at(run)))
    asking.start()
    agent.asked()
    seen = agent.answers(("AutoMem", MEMORY))
    assert wanted.get(timeout=DEADLINE) == tuple(seen.values())
    asking.join()
    desk.close()


def test_an_agent_that_is_at_work_too_long_is_not_told_of_as_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_socket, "ANSWER_SECONDS", 0.0)
    agent = Agent()
    agent.inquiry.sent(USER)
    desk = open_desk(tmp_path, agent.inquiry)
    assert desk is not None
    (one,) = ask_at(tmp_path)
    assert (one.control, one.observed, one.contradicts) == ("native memory", "not told", "")
    assert "a turn is under way" in one.source
    desk.close()


def test_where_no_run_answers_nothing_is_told(tmp_path: Path) -> None:
    assert ask_at(tmp_path) == ()
    assert ask_at(tmp_path / "gone") == ()
    assert open_desk(tmp_path / "gone", Agent().inquiry) is None
