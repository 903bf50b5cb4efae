"""Claude's own answer about its context, on the launch's channel: the second proof of a stream."""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from amux.launcher.channel.context_query import open_inquiry
from amux.launcher.channel.jsonlines import JsonLinesChannel
from amux.launcher.launch import launch
from amux.launcher.probe.model import Call, Say
from amux.launcher.process.spawn import SpawnRequest, spawn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore, State
from amux.providers.base import Sighting
from amux.providers.claude import ClaudeProvider
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from amux.launcher.run import Run
    from amux.launcher.session.notice import Notice
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

SOURCE: Final = "get_context_usage"
ON: Final = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    """Set a stage on which Claude has a memory of its own, and the project instructions."""
    with staged(tmp_path, shared_host, "claude", version, lambda _: Say("ok")) as made:
        (made.cwd / "CLAUDE.md").write_text("The project's own text.\n")
        slug = str(made.cwd.resolve()).replace("/", "-").replace("_", "-")
        memory = made.home / ".claude" / "projects" / slug / "memory"
        memory.mkdir(parents=True)
        (memory / "MEMORY.md").write_text("- likes tea\n")
        yield made


def begin(stage: Stage, heard: queue.Queue[Notice], **changes: Any) -> Run:  # noqa: ANN401
    request = LaunchRequest(
        provider=stage.provider,
        arguments=stage.options,
        cwd=stage.cwd,
        environment=stage.environment,
        executable=stage.executable,
        **changes,
    )
    return launch(request, stage.host, heard=heard.put)


def turn(channel: JsonLinesChannel, text: str = "hello") -> list[dict[str, Any]]:
    """Take one turn and return all that the channel's holder got to see."""
    channel.send({"type": "user", "message": {"role": "user", "content": text}})
    messages = [channel.receive(deadline=SECONDS)]
    while messages[-1].get("type") != "result":
        messages.append(channel.receive(deadline=SECONDS))
    return messages


def told(heard: queue.Queue[Notice]) -> dict[str, Sighting]:
    """Wait until the context was told of."""
    while True:
        seen = heard.get(timeout=SECONDS).seen
        found = {one.control: one for one in seen if one.source.startswith(SOURCE)}
        if found:
            return found


def test_the_context_is_told_after_the_first_turn_of_each_run_and_after_a_compaction(
    stage: Stage, version: str
) -> None:
    del version
    heard: queue.Queue[Notice] = queue.Queue()
    with begin(stage, heard) as run:
        assert not any(one.source.startswith(SOURCE) for one in run.report.seen)
        shown = turn(run.channel)
        seen = told(heard)
        assert {name: (one.observed, one.turn) for name, one in seen.items()} == {
            "native memory": ("absent", 1),
            "instruction files": (f"Project {stage.cwd}/CLAUDE.md", 1),
            "memory tools": ("5 offered", 1),
        }
        shown += turn(run.channel) + turn(run.channel)  # less is not compacted
        shown += turn(run.channel, "/compact")
        assert told(heard)["native memory"].turn == 4
        shown += turn(run.channel)
        assert "control_response" not in {one["type"] for one in shown}
    done, _ = stage.amux("sessions", "show", run.report.session)
    asked, _, rest = done.stdout.partition("seen in this conversation:")
    assert "auto memory = off (get_settings" in asked
    assert f"native memory = absent ({SOURCE} memoryFiles, turn 4)" in rest
    heard = queue.Queue()
    with launch(
        LaunchRequest(
            session=run.report.session,
            environment=stage.environment,
            executable=stage.executable,
        ),
        stage.host,
        heard=heard.put,
    ) as again:
        turn(again.channel)
        assert told(heard)["native memory"].observed == "absent"


def test_somebody_who_wants_to_know_is_told_at_any_time(stage: Stage, version: str) -> None:
    del version
    heard: queue.Queue[Notice] = queue.Queue()
    with begin(stage, heard) as run:
        seen = {one.control: one for one in run.verify(deadline=SECONDS)}
        assert (seen["native memory"].observed, seen["native memory"].turn) == ("absent", 0)
        assert told(heard)["native memory"] == seen["native memory"]
        done, _ = stage.amux("sessions", "verify", run.report.session)  # of another process
        assert done.returncode == 0, done.stderr
        assert f"native memory = absent ({SOURCE} memoryFiles, turn 0)" in done.stdout
        folder = Path(stage.record(run.report.native_id).run)
    assert not folder.exists()


def test_the_sidecars_claude_is_asked_too(tmp_path: Path, shared_host: Host, version: str) -> None:
    heard: queue.Queue[Notice] = queue.Queue()
    with staged(tmp_path, shared_host, "claude", version, provider="claude-sdk") as stage:
        with begin(stage, heard) as run:
            shown = turn(run.channel)
            assert told(heard)["native memory"].observed == "absent"
            shown += turn(run.channel)
        assert "control_response" not in {one["type"] for one in shown}


def test_messages_that_claude_took_along_in_one_turn_do_not_keep_it_from_being_asked(
    tmp_path: Path, shared_host: Host, version: str
) -> None:
    begun, more = threading.Event(), threading.Event()

    def mind(turn: Turn) -> Answer:
        tool = None if turn.results else turn.tool("Bash")
        if tool is None:
            return Say("ok")
        begun.set()
        more.wait(SECONDS)
        return Call(tool, {"command": "true", "description": "nothing"})

    heard: queue.Queue[Notice] = queue.Queue()
    with (
        staged(tmp_path, shared_host, "claude", version, mind) as stage,
        begin(stage, heard) as run,
    ):
        one = {"type": "user", "message": {"role": "user", "content": "hello"}}
        run.channel.send(one)
        begun.wait(SECONDS)
        run.channel.send(one)
        run.channel.send(one)
        more.set()
        while run.channel.receive(deadline=SECONDS).get("type") != "result":
            pass
        assert told(heard)["native memory"].observed == "absent"


def test_verify_says_of_an_ended_session_only_what_its_transcript_holds(
    stage: Stage, version: str
) -> None:
    report, _ = stage.turn()
    done, _ = stage.amux("sessions", "verify", report.session)
    assert done.returncode == 0, done.stderr
    assert SOURCE not in done.stdout
    observed = "not stored" if version == "2.1.197" else "absent"
    assert f"native memory = {observed} (transcript" in done.stdout


def test_native_memory_in_the_context_is_read_off_claudes_answer(
    stage: Stage, version: str
) -> None:
    del version
    provider, answers = ClaudeProvider(), queue.SimpleQueue[tuple[Sighting, ...]]()
    words = ["-p", "--verbose", "--input-format=stream-json", "--output-format=stream-json"]
    process = spawn(
        SpawnRequest(
            argv=(str(stage.executable), *stage.options, *words),
            environment=stage.environment,
            cwd=str(stage.cwd),
            marker="0" * 32,
        )
    )
    try:
        channel = JsonLinesChannel(process)
        channel.inquiry = open_inquiry(provider, channel.send, answers.put)
        turn(channel)
        seen = {one.control: one for one in answers.get(timeout=SECONDS)}
        assert seen["native memory"].observed == "present"
        assert "/memory/MEMORY.md" in seen["native memory"].contradicts
    finally:
        process.stop()


def test_native_memory_that_comes_into_the_context_ends_the_run(stage: Stage, version: str) -> None:
    del version
    heard: queue.Queue[Notice] = queue.Queue()
    with begin(stage, heard) as run:
        turn(run.channel)
        assert told(heard)["native memory"].observed == "absent"
        turn(run.channel)
        turn(run.channel)
        # Behind the channel's back, as a bug of Claude's would; `init` would tell of it first.
        run.channel.watcher = None
        flags = {"subtype": "apply_flag_settings", "settings": ON}
        raw = {"type": "control_request", "request_id": "x", "request": flags}
        run.process.write(memoryview(json.dumps(raw).encode() + b"\n"))
        turn(run.channel, "/compact")
        seen = told(heard)["native memory"]
        assert seen.observed == "present"
        assert run.wait(SECONDS) is not None
    record = SessionStore(stage.host.home).load(run.report.session)
    assert record.state is State.ENDED
    assert record.failure == seen.contradicts
    assert seen.contradicts in record.warnings
