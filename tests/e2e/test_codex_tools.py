"""The memory tools in Codex: there before the first turn, approved, and nobody else's."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import ChannelError
from amux.launcher.launch import launch
from amux.launcher.probe.model import Call, Say, ScriptedModel
from amux.launcher.probe.stage import MODEL, stage_codex
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore, State
from amux.providers.base import Tools
from amux.providers.codex import handshake
from amux.providers.codex.flags import NAMESPACE, TOOL_NAMES
from amux.providers.errors import BadArguments, RequestRefused
from fixtures.codex import MEMORY_ON, grant_for, make_home, native, open_codex, say_ok, staged
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS
from tests.e2e.test_codex_native_memory import system_file

if TYPE_CHECKING:
    from amux.launcher.channel.jsonrpc import ServerRequest
    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from amux.providers.base import Grant
    from fixtures.codex import CodexHome

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]

SERVER = Path(__file__).with_name("memory_server.py")
SHOWN = sorted(name.replace(".", "_") for name in TOOL_NAMES)


def granted(home: CodexHome) -> Grant:
    return grant_for(home, tools=Tools.MCP, cli=(sys.executable, str(SERVER)))


def memory_tools(turn: Turn) -> list[str]:
    return sorted(offer.name for offer in turn.tools if offer.namespace == NAMESPACE)


@dataclass
class Searcher:
    """A model that searches memory once and repeats the answer."""

    results: list[str] = field(default_factory=list)

    def __call__(self, turn: Turn) -> Answer:
        search = turn.tool("memory_search")
        if search is None or turn.results:
            self.results += [result.text for result in turn.results]
            return Say("done")
        return Call(search, {"query": "tea"})


@pytest.mark.parametrize("model", [MODEL, "gpt-5.5"])
def test_all_five_tools_are_shown_in_the_first_request_and_need_no_approval(
    tmp_path: Path, version: str, model: str
) -> None:
    searcher = Searcher()
    with staged(tmp_path, version, searcher) as stage:
        arguments = ("--model", model, "--ask-for-approval", "on-request")
        with open_codex(stage.home, granted(stage.home), arguments=arguments) as codex:
            codex.turn("search")
        seen = {one.control: one.observed for one in codex.confirmed.evidence}
        assert seen["memory tools"] == ", ".join(TOOL_NAMES)
        assert codex.warnings == ()
        assert memory_tools(stage.model.turns[0]) == SHOWN
        assert stage.model.turns[0].body["tools"] == stage.model.turns[1].body["tools"]
        assert len(searcher.results) == 1
        called = json.loads(searcher.results[0].partition("Output:")[2])
        assert called == {
            "tool": "amux.memory_search",
            "binding": "global",
            "connection": str(tmp_path / "connection.json"),
        }


def test_a_slow_memory_server_is_waited_for_and_a_broken_one_fails_the_launch(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version) as stage:
        cli = (sys.executable, str(SERVER), "--slow")
        slow = grant_for(stage.home, tools=Tools.MCP, cli=cli)
        with open_codex(stage.home, slow) as codex:
            codex.turn("hello")
        assert memory_tools(stage.model.turns[0]) == SHOWN
        broken = grant_for(stage.home, tools=Tools.MCP, cli=("/bin/false",))
        with (
            pytest.raises(RequestRefused, match=r"thread/start .*amux"),
            open_codex(stage.home, broken),
        ):
            pass


def test_a_server_of_the_user_that_hangs_delays_neither_the_launch_nor_the_tools(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version) as stage:
        # Whoever waits for it waits for longer than a test may run.
        stage.home.configure(
            '[mcp_servers.hangs]\ncommand = "/bin/sleep"\nargs = ["100000"]\n'
            "startup_timeout_sec = 3600\n"
        )
        with open_codex(stage.home, granted(stage.home)) as codex:
            seen = {one.control: one.observed for one in codex.confirmed.evidence}
            ready = version == "0.153.4"
            assert seen["memory tools"] == ("server ready" if ready else ", ".join(TOOL_NAMES))
            assert codex.warnings == ()


def test_a_users_server_of_the_same_name_is_merged_reported_and_harmless(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version) as stage:
        stage.home.configure(
            '[mcp_servers.amux]\ncommand = "/bin/false"\nargs = ["x"]\nenabled = false\n'
            'disabled_tools = ["amux.memory_search"]\nenv = { AMUX_MEMORY_BINDING = "x" }\n'
        )
        with open_codex(stage.home, granted(stage.home)) as codex:
            codex.turn("hello")
        assert memory_tools(stage.model.turns[0]) == SHOWN
        assert len(codex.warnings) == 1
        assert (
            f"{stage.home.codex}/config.toml has an MCP server named amux too"
            in (codex.warnings[0])
        )


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.toml", '[mcp_servers.other.identity]\ncommand = "x"\n'),
        ("managed_config.toml", "[mcp_servers.amux]\nenabled = false\n"),
    ],
    ids=["allow-list", "switched off"],
)
def test_a_server_that_an_administrator_drops_is_reported(
    tmp_path: Path, version: str, name: str, text: str
) -> None:
    with staged(tmp_path / "home", version) as stage:
        wrapper = system_file(tmp_path, name, text)
        with open_codex(stage.home, granted(stage.home), wrapper=wrapper) as codex:
            codex.turn("hello")
        assert memory_tools(stage.model.turns[0]) == []
        seen = {one.control: one.observed for one in codex.confirmed.evidence}
        assert seen["memory tools"] == "none"
        assert any("Codex did not load amux.memory_search" in text for text in codex.warnings)


def test_hooks_that_are_active_are_named_without_their_arguments_and_can_be_stopped(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version) as stage:
        home = stage.home
        ran = tmp_path / "hook-ran"
        command = f"/usr/bin/touch {ran}"
        entry = [{"hooks": [{"type": "command", "command": command}]}]
        path = home.codex / "hooks.json"
        path.write_text(json.dumps({"hooks": {"UserPromptSubmit": entry}}))
        with open_codex(home, grant_for(home)) as codex:
            listed = codex.channel.request(
                "hooks/list", {"cwds": [str(home.cwd)]}, deadline=SECONDS
            )
        assert codex.warnings == ()
        hook = listed["data"][0]["hooks"][0]
        home.configure(f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n')
        with open_codex(home, grant_for(home), options={"without-hooks": "true"}) as codex:
            codex.turn("hello")
        assert codex.warnings == ()
        assert not ran.exists()
        with open_codex(home, grant_for(home)) as codex:
            codex.turn("hello")
        assert ran.exists()
        assert len(codex.warnings) == 1
        assert f"(/usr/bin/touch, trusted) of {path}" in codex.warnings[0]
        assert str(ran) not in codex.warnings[0]


@dataclass
class Escalator:
    """A model that wants to run one command outside the sandbox."""

    results: list[str] = field(default_factory=list)

    def __call__(self, turn: Turn) -> Answer:
        run = turn.tool("exec_command")
        if run is None or turn.results:
            self.results += [result.text for result in turn.results]
            return Say("went on")
        escalated = {"sandbox_permissions": "require_escalated", "justification": "because"}
        return Call(run, {"cmd": "echo escalated", **escalated})


@pytest.mark.parametrize("decision", ["accept", None])
def test_approvals_go_to_the_supervisor_and_are_refused_where_it_has_no_policy(
    tmp_path: Path, version: str, decision: str | None
) -> None:
    escalator = Escalator()
    asked: list[str] = []

    def decide(question: ServerRequest) -> dict[str, object]:
        asked.append(question.method)
        return {"decision": decision}

    with staged(tmp_path, version, escalator) as stage:
        arguments = ("--ask-for-approval", "on-request", "--sandbox", "workspace-write")
        with open_codex(stage.home, grant_for(stage.home), arguments=arguments) as codex:
            if decision is not None:
                codex.channel.handler = decide
            assert codex.turn("run it") == "went on"
        assert len(escalator.results) == 1
        assert asked == ([] if decision is None else ["item/commandExecution/requestApproval"])
        ran = "escalated" in escalator.results[0] and "rejected" not in escalator.results[0]
        assert ran is (decision is not None)


def test_more_threads_of_a_supervisor_are_opened_under_the_launch_s_controls(
    host: Host, tmp_path: Path, version: str
) -> None:
    with ScriptedModel(say_ok) as model:
        home = make_home(tmp_path / "home", version, model.url)
        request = LaunchRequest(
            provider="codex",
            cwd=home.cwd,
            environment=home.environment,
            executable=native(version),
        )
        with launch(request, host) as run:
            take_turn("codex", run.channel, "one", native_id=run.report.native_id)
            more = {"cwd": str(home.cwd), "developerInstructions": "other"}
            answer = run.channel.request("thread/start", more, deadline=SECONDS)
            native_id = answer["thread"]["id"]
            take_turn("codex", run.channel, "two", native_id=native_id)
            on = {**more, "config": {"features": {"memories": True}}}
            with pytest.raises(BadArguments, match=r"features\.memories"):
                run.channel.request("thread/start", on, deadline=SECONDS)
            own = {"multi_agent_v2": {"enabled": True, "subagent_developer_instructions": "x"}}
            for params in ({"config": {"features": own}}, {"config": {"features.memories": True}}):
                for method in ("thread/start", "thread/resume", "thread/fork"):
                    with pytest.raises(BadArguments, match="the thread config sets features"):
                        run.channel.request(
                            method, {"threadId": native_id, **params}, deadline=SECONDS
                        )
            mode = {"threadId": native_id, "mode": "enabled"}
            with pytest.raises(BadArguments):
                run.channel.request("thread/memoryMode/set", mode, deadline=SECONDS)
        first, second = model.turns
    assert first.system == second.system
    assert "MEMORY.md" in second.system
    assert set(home.modes().values()) == {"disabled"}
    assert len(home.modes()) == 2


def test_two_launches_at_once_in_one_linked_home_share_nothing_that_amux_writes(
    host: Host, tmp_path: Path, version: str
) -> None:
    searcher = Searcher()
    with ScriptedModel(searcher) as model:
        home = make_home(tmp_path / "home", version, model.url)
        home.configure(MEMORY_ON)
        with open_codex(home, None):
            pass  # Codex itself cannot make its state files twice at once
        link = tmp_path / "link"
        link.symlink_to(home.codex)
        request = LaunchRequest(
            provider="codex",
            cwd=home.cwd,
            environment={**home.environment, "CODEX_HOME": str(link)},
            executable=native(version),
        )

        def one(text: str) -> str:
            with launch(request, host) as run:
                return take_turn("codex", run.channel, text, native_id=run.report.native_id)

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(one, ("left", "right")))
    assert answers == ["done", "done"]
    assert len(searcher.results) == 2
    assert list(home.modes().values()) == ["disabled", "disabled"]


def test_a_handshake_that_hangs_ends_at_its_deadline_and_names_the_version(
    host: Host, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "ANSWER_SECONDS", 0.3)
    silent = tmp_path / "codex"
    silent.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo codex {version} || exec cat >&2\n')
    silent.chmod(0o755)
    request = LaunchRequest(
        provider="codex",
        cwd=tmp_path,
        environment={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        executable=silent,
    )
    with pytest.raises(ChannelError, match=f"codex {version} .* no answer to initialize") as caught:
        launch(request, host)
    assert '"method":"initialize"' in str(caught.value)
    record = SessionStore(host.home).list().records[0]
    assert record.state is State.FAILED


def test_a_launch_reaches_the_hub_and_shows_no_credential_in_any_argv(
    host: Host, tmp_path: Path, version: str
) -> None:
    searcher = Searcher()
    with ScriptedModel(searcher) as model:
        home = tmp_path / "home"
        work = tmp_path / "work"
        work.mkdir()
        request = LaunchRequest(
            provider="codex",
            cwd=work,
            environment=stage_codex(home, model.url),
            executable=native(version),
        )
        with launch(request, host) as run:
            arguments = Path(f"/proc/{run.process.pid}/cmdline").read_bytes()
            connection = next(host.runs.rglob("connection.json"))
            token = json.loads(connection.read_text())["token"]
            answer = take_turn("codex", run.channel, "search", native_id=run.report.native_id)
    assert answer == "done"
    assert '"matches"' in searcher.results[0] or '"results"' in searcher.results[0]
    assert len(token) > 40
    assert token.encode() not in arguments
    assert str(connection).encode() in arguments
    assert run.report.warnings == ()
