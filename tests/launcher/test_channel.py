"""Channels: frames, noise, deadlines, ends, and many threads at once."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from amux.launcher.channel.jsonlines import Controls, JsonLinesChannel
from amux.launcher.channel.jsonrpc import AnswerError, JsonRpcChannel, ServerRequest
from amux.launcher.channel.lines import NOISE_LINES, LineChannel
from amux.launcher.errors import AgentFailed, ChannelError
from amux.launcher.process.spawn import AgentProcess, spawn
from amux.providers.errors import BadArguments
from tests.launcher.agents_at_work import DEADLINE, scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amux.providers.base import JsonObject

    Start = Callable[..., AgentProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start scripted agents and end them after the test."""
    started: list[AgentProcess] = []

    def begin(*arguments: str) -> AgentProcess:
        started.append(process := spawn(scripted(*arguments)))
        return process

    yield begin
    for process in started:
        process.stop(close=0.2)
        process.wait()


def test_a_json_line_is_answered(start: Start) -> None:
    channel = JsonLinesChannel(start())
    channel.send({"text": "héllo \u2028 \U0001f600\n"})
    assert channel.receive(deadline=DEADLINE) == {"echo": {"text": "héllo \u2028 \U0001f600\n"}}


def test_a_message_of_megabytes_passes_both_ways(start: Start) -> None:
    channel = JsonLinesChannel(start())
    channel.send({"text": "x" * 5_000_000})
    assert len(channel.receive(deadline=DEADLINE)["echo"]["text"]) == 5_000_000


def test_a_banner_is_skipped_and_recorded(start: Start) -> None:
    channel = JsonLinesChannel(start("--banner", "Welcome to the agent!"))
    channel.send({})
    assert channel.receive(deadline=DEADLINE) == {"echo": {}}
    assert channel.noise == ("Welcome to the agent!",)


def test_endless_noise_is_an_error(start: Start) -> None:
    channel = JsonLinesChannel(start("--noise", str(NOISE_LINES + 1)))
    with pytest.raises(ChannelError, match="noise"):
        channel.receive(deadline=DEADLINE)


def test_a_broken_frame_is_an_error_that_shows_it(start: Start) -> None:
    channel = JsonLinesChannel(start("--broken"))
    with pytest.raises(ChannelError, match="half"):
        channel.receive(deadline=DEADLINE)


def test_silence_ends_with_the_deadline(start: Start) -> None:
    channel = JsonLinesChannel(start())
    with pytest.raises(ChannelError, match=r"within 0\.05 s"):
        channel.receive(deadline=0.05)


def test_the_end_of_the_agent_is_told_with_its_status_and_stderr(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    with pytest.raises(AgentFailed, match="exit 3") as caught:
        channel.request("exit", {}, deadline=DEADLINE)
    assert "the agent gives up" in caught.value.stderr


def test_messages_from_before_the_end_can_still_be_read(start: Start) -> None:
    process = start()
    channel = JsonLinesChannel(process)
    channel.send({"last": True})
    channel.send({"exit": 4})
    process.wait(DEADLINE)
    assert channel.receive(deadline=DEADLINE) == {"echo": {"last": True}}
    with pytest.raises(AgentFailed, match="exit 4"):
        channel.receive(deadline=DEADLINE)


def test_an_agent_that_does_not_read_is_an_error_and_no_hang(start: Start) -> None:
    channel = LineChannel(start("--close-stdout"))
    with pytest.raises(ChannelError, match="took"):
        channel.send_line("x" * 1_000_000, deadline=0.3)


def test_an_agent_that_closed_stdout_and_lives_on_has_no_channel(start: Start) -> None:
    process = start("--close-stdout")
    channel = JsonLinesChannel(process)
    with pytest.raises(AgentFailed, match="closed its stdout"):
        channel.receive(deadline=DEADLINE)
    assert process.status is None


def test_plain_lines_are_carried(start: Start) -> None:
    channel = LineChannel(start("--plain"))
    channel.send_line("one")
    channel.send_line("two")
    assert channel.receive_line(deadline=DEADLINE) == "> one"
    assert channel.receive_line(deadline=DEADLINE) == "> two"


def test_a_channel_without_requests_says_so(start: Start) -> None:
    channel = JsonLinesChannel(start())
    with pytest.raises(ChannelError, match="no requests"):
        channel.request("ping", {}, deadline=DEADLINE)


def test_a_request_gets_its_own_result_between_notifications(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    assert channel.request("notify", {"count": 3}, deadline=DEADLINE) == {"sent": 3}
    assert channel.request("ping", {"a": 1}, deadline=DEADLINE) == {"a": 1}
    numbers = [channel.receive(deadline=DEADLINE)["params"]["number"] for _ in range(3)]
    assert numbers == [0, 1, 2]


def test_many_threads_get_their_own_answers(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    answers: dict[int, JsonObject] = {}

    def ask(number: int) -> None:
        for round_ in range(20):
            key = number * 100 + round_
            answers[key] = channel.request("ping", {"key": key}, deadline=DEADLINE)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 200
    assert all(answer == {"key": key} for key, answer in answers.items())


def test_an_error_answer_is_raised_with_what_the_agent_said(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    with pytest.raises(AnswerError, match="refused by script") as caught:
        channel.request("refuse", {}, deadline=DEADLINE)
    assert caught.value.error["code"] == -32600


def test_a_request_without_an_answer_ends_with_its_deadline(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    with pytest.raises(ChannelError, match="no answer to never"):
        channel.request("never", {}, deadline=0.1)
    assert channel.request("ping", {"still": True}, deadline=DEADLINE) == {"still": True}


def test_every_pending_request_fails_when_the_agent_ends(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    failures: list[str] = []

    def ask() -> None:
        try:
            channel.request("never", {}, deadline=DEADLINE)
        except AgentFailed as error:
            failures.append(error.stderr)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    with pytest.raises(AgentFailed):
        channel.request("exit", {}, deadline=DEADLINE)
    for thread in threads:
        thread.join(DEADLINE)
    assert failures == ["the agent gives up\n"] * 5


def test_the_agents_own_request_goes_to_the_handler(start: Start) -> None:
    asked: list[ServerRequest] = []

    def approve(request: ServerRequest) -> JsonObject:
        asked.append(request)
        return {"decision": "approved"}

    channel = JsonRpcChannel(start("--rpc"), approve)
    answer = channel.request("ask", {"method": "approve"}, deadline=DEADLINE)
    assert asked == [ServerRequest(method="approve", params={"of": "client"})]
    assert answer["reply"] == {"id": "question-1", "result": {"decision": "approved"}}


def test_without_a_handler_the_agents_request_is_refused(start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc"))
    answer = channel.request("ask", {"method": "approve"}, deadline=DEADLINE)
    assert answer["reply"]["error"]["code"] == -32601


def test_a_handler_that_fails_still_answers_and_shows_no_secret(start: Start) -> None:
    def fail(request: ServerRequest) -> JsonObject:
        raise KeyError("hunter2", request)

    channel = JsonRpcChannel(start("--rpc"), fail)
    answer = channel.request("ask", {"method": "approve"}, deadline=DEADLINE)
    assert answer["reply"]["error"]["code"] == -32603
    assert "hunter2" not in json.dumps(answer)


def test_an_answer_that_is_no_json_is_the_handlers_mistake_and_still_answered(
    start: Start,
) -> None:
    channel = JsonRpcChannel(start("--rpc"), lambda _: {"decision": object()})
    answer = channel.request("ask", {"method": "approve"}, deadline=DEADLINE)
    assert answer["reply"]["error"]["code"] == -32603


def test_stopping_while_others_wait_ends_their_wait(start: Start) -> None:
    process = start("--rpc")
    channel = JsonRpcChannel(process)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises((AgentFailed, ChannelError)):
            channel.receive(deadline=DEADLINE)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    process.stop()
    assert ended.wait(DEADLINE)
    thread.join()


def test_a_session_that_ended_never_writes_into_anothers_pipe(start: Start) -> None:
    """Descriptors are reused: those of an ended agent may be another's by now."""
    ended = start()
    old = JsonLinesChannel(ended)
    ended.stop()
    channels = [JsonLinesChannel(start()) for _ in range(6)]
    with pytest.raises((AgentFailed, ChannelError)):
        old.send({"secret": "of the first"})
    for channel in channels:
        channel.send({"own": True})
        assert channel.receive(deadline=DEADLINE) == {"echo": {"own": True}}


@pytest.mark.parametrize("answer", ["[]", "{}", "1.0", "true", '"1"', "null"])
def test_an_answer_with_a_strange_id_breaks_nothing(answer: str, start: Start) -> None:
    channel = JsonRpcChannel(start("--rpc", "--banner", f'{{"id": {answer}, "result": {{}}}}'))
    assert channel.request("ping", {"a": 1}, deadline=DEADLINE) == {"a": 1}


def test_a_frame_nested_without_end_is_a_broken_one(start: Start) -> None:
    channel = JsonLinesChannel(start("--banner", '{"a":' + "[" * 60_000))
    with pytest.raises(ChannelError, match="broken frame"):
        channel.receive(deadline=DEADLINE)


def test_half_a_surrogate_pair_travels_and_what_is_no_json_is_refused(start: Start) -> None:
    channel = JsonLinesChannel(start())
    channel.send({"text": "\ud83d"})
    assert channel.receive(deadline=DEADLINE) == {"echo": {"text": "\ud83d"}}
    for wrong in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises(ChannelError, match="JSON"):
            channel.send(wrong)
    with pytest.raises(ChannelError, match="line end"):
        LineChannel.send_line(channel, "a\nb")


def test_messages_that_were_put_back_come_next_in_their_order(start: Start) -> None:
    channel = JsonLinesChannel(start())
    for number in range(3):
        channel.send({"n": number})
    first, second = channel.receive(deadline=DEADLINE), channel.receive(deadline=DEADLINE)
    channel.put_back([first, second])
    came = [channel.receive(deadline=DEADLINE) for _ in range(3)]
    assert came == [{"echo": {"n": number}} for number in range(3)]


def test_every_json_line_that_is_sent_is_held_to_the_controls(start: Start) -> None:
    channel = JsonLinesChannel(start())

    def before(method: str, message: JsonObject) -> JsonObject:
        if method == "undo":
            raise BadArguments("no")
        return {**message, "held": True}

    channel.controls = Controls(before=before, after=lambda *_: None)
    channel.send({"type": "a"})
    channel.send_line('{"type": "b"}')
    with pytest.raises(ChannelError, match="cannot be read as JSON"):
        channel.send_line('{"type": "undo", "n": ' + "1" * 5_000 + "}")
    for undo in (channel.send, lambda message: channel.send_line(json.dumps(message))):
        with pytest.raises(BadArguments):
            undo({"type": "undo"})
    came = [channel.receive(deadline=DEADLINE)["echo"] for _ in range(2)]
    assert came == [{"type": "a", "held": True}, {"type": "b", "held": True}]


def test_a_watcher_sees_every_message_before_it_can_be_received(start: Start) -> None:
    channel = JsonLinesChannel(start())
    seen: list[JsonObject] = []
    channel.watcher = seen.append
    channel.send({"n": 1})
    assert channel.receive(deadline=DEADLINE) == seen[0] == {"echo": {"n": 1}}
