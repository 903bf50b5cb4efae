"""Codex's own screen, on a real terminal, and `codex exec`, on pipes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.probe.model import ScriptedModel
from amux.launcher.session.store import SessionStore, State
from fixtures.codex import (
    MEMORY_ON,
    PROMPT,
    CodexHome,
    inputs,
    make_home,
    native,
    open_codex,
    say_ok,
)
from fixtures.hosts import running_host
from fixtures.pinned import CODEX_VERSIONS
from fixtures.terminal import terminal
from fixtures.waiting import SECONDS
from tests.e2e.test_codex_subagent_text import KEY, TABLE, Crew, is_child, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Script, Turn
    from amux.launcher.session.store import SessionRecord
    from fixtures.terminal import Terminal

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]


@dataclass(frozen=True, slots=True)
class Desk:
    """A Runtime, a home of Codex and its model: what a person launches from."""

    host: Host
    home: CodexHome
    model: ScriptedModel

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.home.environment,
            "AMUX_HOME": str(self.host.home),
            "AMUX_RUNS": str(self.host.runs),
        }

    def command(self, *words: str) -> tuple[str, ...]:
        amux = Path(sys.executable).with_name("amux")
        verb, *rest = words
        agent = ("--executable", str(native(self.home.version)))
        target, *arguments = rest
        return (str(amux), verb, target, *agent, "--cwd", str(self.home.cwd), *arguments)

    @contextlib.contextmanager
    def screen(self, *words: str) -> Iterator[Terminal]:
        with terminal(self.command(*words), self.environment, self.home.cwd) as screen:
            yield screen

    def prompt(self, screen: Terminal, text: str) -> Turn:
        """Send a prompt from the screen and return the model's request for it."""
        found: list[Turn] = []

        def asked() -> bool:
            found[:] = [one for one in self.model.turns if one.user[-1:] == (text,)]
            return bool(found)

        screen.enter(text, asked)
        return found[0]

    def record(self) -> SessionRecord:
        return SessionStore(self.host.home).list().records[0]


@contextlib.contextmanager
def desk(version: str, script: Script = say_ok) -> Iterator[Desk]:
    """Make one below a short path: the server's socket is in it."""
    with (
        tempfile.TemporaryDirectory(prefix="ax") as folder,
        running_host(Path(folder)) as host,
        ScriptedModel(script) as model,
    ):
        home = make_home(Path(folder) / "h", version, model.url)
        home.trust()
        home.configure(MEMORY_ON, first='developer_instructions = "USERS-OWN"')
        home.remember()
        yield Desk(host, home, model)


def warned(record: SessionRecord) -> tuple[str, ...]:
    """Return the record's warnings but for the one of memory files that are not read."""
    return tuple(one for one in record.warnings if not one.startswith("Codex's own memory is off"))


def assert_bound(turn: Turn) -> None:
    body = json.dumps(turn.body)
    assert body.count("USERS-OWN") == 1
    assert turn.tool("memory_search") is not None
    assert "MEMORY.md" in turn.system
    assert "OLD-NATIVE-SUMMARY" not in body
    assert "<memory" not in turn.system


def test_every_thread_on_the_screen_is_bound_also_new_ones_and_a_resume_of_them(
    version: str,
) -> None:
    with desk(version) as place:
        with place.screen("launch", "codex", "--", "-c", "features.memories=true") as screen:
            screen.shows(PROMPT)
            screen.until(lambda: len(place.home.modes()) == 1, "the stored mode")
            first = place.prompt(screen, "first")
            screen.shows("• ok")
            screen.enter("/new", lambda: len(place.home.modes()) == 2)
            second = place.prompt(screen, "second")
            assert screen.leave("/quit") == 0
        assert_bound(first)
        assert_bound(second)
        assert "first" not in second.user
        assert set(place.home.modes().values()) == {"disabled"}
        assert not any("x-openai-subagent" in turn.headers for turn in place.model.turns)
        record = place.record()
        assert record.state is State.ENDED
        assert record.native_id in place.home.modes()
        seen = {one.control: one.observed for one in record.evidence}
        assert seen["memoryMode"] == "disabled"
        assert seen["memory tools"].count("amux.") == 5
        assert list(place.host.runs.iterdir()) == []
        with place.screen("resume", record.id) as screen:
            screen.shows("first")
            screen.shows(PROMPT)
            third = place.prompt(screen, "third")
            assert screen.leave("/quit") == 0
        assert_bound(third)
        assert "first" in third.user
        assert inputs(third)[: len(inputs(first))] == inputs(first)
        assert warned(place.record()) == warned(record)
        with place.screen("resume", record.id, "--fork") as screen:
            screen.until(lambda: len(place.home.modes()) == 3, "the fork")
            screen.shows(PROMPT)
            fourth = place.prompt(screen, "fourth")
            assert screen.leave("/quit") == 0
        assert_bound(fourth)
        assert "third" in fourth.user
        fork = place.record()
        assert (fork.parent, fork.instructions) == (record.id, record.instructions)
        assert fork.native_id not in {"", record.native_id}
        assert set(place.home.modes().values()) == {"disabled"}


def test_sub_agents_of_the_screen_get_their_own_text_and_the_protocol_also_on_a_resume(
    version: str,
) -> None:
    crew = Crew()
    with desk(version, crew) as place:
        place.home.configure(TABLE)
        own = "As the flag says."
        with place.screen("launch", "codex", "--", "-c", f'{KEY}="{own}"') as screen:
            screen.shows(PROMPT)
            place.prompt(screen, "PARENT")
            screen.shows("• parent done")
            assert screen.leave("/quit") == 0
        record = place.record()
        assert record.subagent_instructions == f"{own}\n\n{record.protocol}"
        seen = {one.control: one for one in record.evidence}
        assert seen["protocol in sub-agents"].observed == "appended"
        assert seen["protocol in sub-agents"].source == "config/read"
        with place.screen("resume", record.id) as screen:
            screen.shows(PROMPT)
            place.prompt(screen, "PARENT again")
            screen.until(lambda: screen.screen.count("parentdone") == 2, "the end of the turn")
            assert screen.leave("/quit") == 0
        children = [turn for turn in place.model.turns if is_child(turn)]
        assert crew.failures == []
        assert len(children) == 2
        for child in children:
            assert told(child, record.subagent_instructions) == told(child, record.protocol) == 1
        assert not any("sub-agent" in text for text in place.record().warnings)


@pytest.mark.parametrize("require", [False, True])
def test_a_native_conversation_that_is_resumed_on_the_screen_is_named_and_its_row_stays(
    version: str, *, require: bool
) -> None:
    with desk(version) as place:
        with open_codex(place.home, None) as codex:
            codex.turn("from before")
        assert place.home.modes() == {codex.native_id: "enabled"}
        words = ("--require-memory",) if require else ()
        with place.screen("launch", "codex", *words) as screen:
            screen.until(lambda: len(place.home.modes()) == 2, "a new thread")
            screen.shows(PROMPT)
            screen.enter("/resume", lambda: "frombefore" in screen.screen)
            screen.press("\r")
            if require:
                screen.until(lambda: place.record().state is State.ENDED, "the run's end")
            else:
                screen.until(lambda: len(warned(place.record())) > 1, "the record's warnings")
                turn = place.prompt(screen, "go on")
                assert "from before" in turn.user
                assert "OLD-NATIVE-SUMMARY" in turn.system  # as the warnings say
                assert screen.leave("/quit") == 0
        assert place.home.modes()[codex.native_id] == "enabled"
        record = place.record()
        assert f"{codex.native_id} was resumed on the screen" in warned(record)[0]
        assert any("its native memory into this conv" in text for text in record.warnings)
        assert any("does not have the memory protocol" in text for text in record.warnings)
        assert codex.native_id not in {record.native_id, *record.conversations}
        assert ("requires memory" in record.failure) == require


def anew(place: Desk, screen: Terminal, *, count: int) -> None:
    """Open a new thread on the screen, the one of that number."""
    screen.enter("/new", lambda: len(place.home.modes()) == count)


def test_new_threads_of_the_screen_are_not_called_resumed_and_can_be_resumed_by_their_ids(
    version: str,
) -> None:
    with desk(version) as place:
        with place.screen("launch", "codex") as screen:
            screen.shows(PROMPT)
            for number in range(1, 4):
                place.prompt(screen, f"hello {number}")
                anew(place, screen, count=number + 1)
            place.prompt(screen, "last")
            screen.until(lambda: len(place.record().conversations) == 4, "every thread settled")
            assert screen.leave("/quit") == 0
        record = place.record()
        assert warned(record) == ()
        assert set(record.conversations) == set(place.home.modes())
        later = record.conversations[-1]
        words = ("--", "exec", "--skip-git-repo-check", "resume", later, "more")
        resumed = run(place, "launch", "codex", *words)
        assert resumed.returncode == 0, resumed.stderr
        assert_bound(place.model.turns[-1])
        assert place.record().id == record.id
        assert place.record().native_id == later


def run(place: Desk, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        place.command(*words),
        env=place.environment,
        cwd=place.home.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_codex_exec_is_bound_after_a_preflight_and_ends_with_its_own_status(version: str) -> None:
    with desk(version) as place:
        words = ("exec", "--skip-git-repo-check", "-c", "features.memories=true", "hello")
        done = run(place, "launch", "codex", "--", *words)
        assert (done.returncode, done.stdout.strip()) == (0, "ok")
        assert_bound(place.model.turns[-1])
        assert set(place.home.modes().values()) == {"disabled"}
        assert not any("x-openai-subagent" in turn.headers for turn in place.model.turns)
        record = place.record()
        sources = {one.control: one.source for one in record.evidence}
        assert sources["features.memories"] == "config/read, pre-flight"
        failed = run(place, "launch", "codex", "--", "exec", "--no-such-flag")
        assert failed.returncode == 2
        assert "--no-such-flag" in failed.stderr


def test_hooks_run_in_codex_exec_and_without_hooks_stops_them(version: str) -> None:
    with desk(version) as place:
        ran = place.home.folder / "hook-ran"
        command = {"type": "command", "command": f"/usr/bin/touch {ran}"}
        hooks = {"hooks": {"UserPromptSubmit": [{"hooks": [command]}]}}
        (place.home.codex / "hooks.json").write_text(json.dumps(hooks))
        with open_codex(place.home, None) as codex:
            where = {"cwds": [str(place.home.cwd)]}
            listed = codex.channel.request("hooks/list", where, deadline=SECONDS)
        hook = listed["data"][0]["hooks"][0]
        trusted = f'trusted_hash = "{hook["currentHash"]}"'
        place.home.configure(f'[hooks.state."{hook["key"]}"]\n{trusted}\n')
        words = ("--", "exec", "--skip-git-repo-check", "hello")
        assert run(place, "launch", "codex", "--without-hooks", *words).returncode == 0
        assert not ran.exists()
        assert warned(place.record()) == ()
        assert run(place, "launch", "codex", *words).returncode == 0
        assert ran.exists()
        assert "may keep a memory of its own" in warned(place.record())[0]


def test_what_cannot_be_confirmed_ends_with_125_before_codex_starts(version: str) -> None:
    with desk(version) as place:
        refused = run(place, "launch", "codex", "--", "exec", "--ignore-user-config", "hello")
        assert refused.returncode == 125
        assert "--ignore-user-config" in refused.stderr
        assert not (place.home.codex / "state_5.sqlite").exists()
        old = Path(os.path.dirname(place.home.folder)) / "codex"  # noqa: PTH120  # beside the home
        old.write_text("#!/bin/sh\necho codex-cli 0.120.0\n")
        old.chmod(0o755)
        words = ("--executable", str(old), "--", "exec", "hello")
        refused = run(place, "launch", "codex", *words)
        assert refused.returncode == 125
        assert "0.120.0" in refused.stderr
        assert place.model.turns == []
