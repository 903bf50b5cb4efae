"""What Codex and its sub-agents are told, over resume, fork and compaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from amux.launcher.probe.model import Call, Compaction, Say
from fixtures.codex import MEMORY_ON, PROTOCOL, grant_for, inputs, open_codex, resumed, staged
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.probe.model import Answer, Turn
    from fixtures.codex import CodexHome

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]

USERS = "Answer in verse."
MERGED = f"{USERS}\n\n{PROTOCOL}"
ESCAPED = json.dumps(PROTOCOL)[1:-1]


def told(turn: Turn) -> int:
    """Count the protocol in the whole request, wherever it is."""
    return json.dumps(turn.body).count(ESCAPED)


def compacting(turn: Turn) -> Answer:
    """Answer remote compactions as the service does, everything else with text."""
    if inputs(turn)[-1].get("type") == "compaction_trigger":
        return Compaction("OPAQUE")
    return Say("ok")


def with_instructions(home: CodexHome) -> None:
    home.configure("", first=f'developer_instructions = "{USERS}"')


def test_the_users_own_instructions_come_first_then_the_protocol_once(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path / "bound", version) as stage, staged(tmp_path / "bare", version) as bare:
        for home in (stage.home, bare.home):
            with_instructions(home)
            (home.cwd / "AGENTS.md").write_text("Project rule.\n")
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("hello")
        with open_codex(bare.home, None) as other:
            other.turn("hello")
        turn, plain = stage.model.turns[-1], bare.model.turns[-1]
        assert codex.confirmed.instructions == MERGED
        assert told(turn) == 1
        assert MERGED in turn.system
        ours = turn.system.replace(MERGED, USERS).replace(str(stage.home.folder), "HOME")
        assert ours == plain.system.replace(str(bare.home.folder), "HOME")
        assert turn.body.get("instructions") == plain.body.get("instructions")
        assert sum("Project rule." in text for text in turn.user) == 1


@pytest.mark.parametrize("remote", [False, True], ids=["inline", "remote"])
def test_the_protocol_survives_compaction_cold_resume_and_fork(
    tmp_path: Path, version: str, *, remote: bool
) -> None:
    with staged(tmp_path, version, compacting) as stage:
        with_instructions(stage.home)
        if remote:
            path = stage.home.codex / "config.toml"
            path.write_text(path.read_text().replace('name = "scripted"', 'name = "OpenAI"'))
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("one")
            codex.compact()
            codex.turn("two")
            assert "one" in stage.model.turns[-1].user
        compactions = [t for t in stage.model.turns if inputs(t)[-1].get("type") != "message"]
        assert len(compactions) == (1 if remote else 0)
        settings = stage.home.codex / "config.toml"
        settings.write_text(settings.read_text().replace(USERS, "Answer in prose."))
        again = grant_for(stage.home, instructions=codex.confirmed.instructions)
        with open_codex(stage.home, again, resume=resumed(codex.native_id)) as second:
            second.turn("three")
            second.compact()
            second.turn("four")
        with open_codex(stage.home, again, resume=resumed(codex.native_id, fork=True)) as third:
            third.turn("five")
            third.compact()
            third.turn("six")
        assert second.confirmed.instructions == third.confirmed.instructions == MERGED
        assert [told(turn) for turn in stage.model.turns] == [1] * (6 + 3)
        assert all("Answer in prose." not in turn.system for turn in stage.model.turns)


def test_a_resume_keeps_the_prefix_byte_for_byte(tmp_path: Path, version: str) -> None:
    with staged(tmp_path, version) as stage:
        with open_codex(stage.home, grant_for(stage.home)) as first:
            first.turn("one")
        again = grant_for(stage.home, instructions=first.confirmed.instructions, protocol="newer")
        with open_codex(stage.home, again, resume=resumed(first.native_id)) as second:
            second.turn("two")
        before, after = stage.model.turns[0].body, stage.model.turns[-1].body
        known = len(before["input"])
        assert after["input"][:known] == before["input"]
        assert after.get("instructions") == before.get("instructions")
        assert after["tools"] == before["tools"]


def test_a_folder_that_codex_trusts_by_itself_adds_its_instructions_as_without_amux(
    tmp_path: Path, version: str
) -> None:
    arguments = ("--sandbox", "workspace-write")
    with staged(tmp_path / "bound", version) as stage, staged(tmp_path / "bare", version) as bare:
        for home in (stage.home, bare.home):
            (home.cwd / ".codex").mkdir()
            (home.cwd / ".codex" / "config.toml").write_text(
                f'developer_instructions = "{USERS}"\n{MEMORY_ON}'
            )
            home.remember()
        with open_codex(bare.home, None, arguments=arguments) as other:
            other.turn("hello")
        assert USERS in bare.model.turns[0].system
        with open_codex(stage.home, grant_for(stage.home), arguments=arguments) as codex:
            codex.turn("hello")
        assert codex.confirmed.instructions == MERGED
        assert MERGED in stage.model.turns[0].system
        assert "## Memory" not in stage.model.turns[0].system
        assert stage.home.modes() == {codex.native_id: "disabled"}


@dataclass
class Parent:
    """A model that hands a task to a sub-agent, in a role if there is one, and waits for it."""

    role: str | None = None
    failures: list[str] = field(default_factory=list)

    def __call__(self, turn: Turn) -> Answer:
        if "PARENT" not in turn.user[-1] and "PARENT" not in " ".join(turn.user):
            return Say("child done")
        spawn, wait = turn.tool("spawn_agent"), turn.tool("wait_agent")
        if spawn is None or wait is None:
            self.failures.append(", ".join(tool.full_name for tool in turn.tools))
            return Say("no sub-agents")
        match len(turn.results):
            case 0:
                role = {} if self.role is None else {"agent_type": self.role}
                return Call(spawn, {"message": "CHILD, do it", **role})
            case 1:
                agent = json.loads(turn.results[0].text)["agent_id"]
                return Call(wait, {"targets": [agent], "ids": [agent], "timeout_ms": 10_000})
            case _:
                return Say("parent done")


def is_child(turn: Turn) -> bool:
    return turn.headers.get("x-openai-subagent") == "collab_spawn"


def test_a_sub_agent_gets_the_protocol_and_gives_no_native_memories(
    tmp_path: Path, version: str
) -> None:
    parent = Parent()
    with staged(tmp_path, version, parent) as stage:
        with_instructions(stage.home)
        stage.home.remember()
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("PARENT")
            child = stage.model.wait_for(is_child, deadline=SECONDS)
        assert parent.failures == []
        assert told(child) == 1
        assert MERGED in child.system
        assert "## Memory" not in child.system
        assert list(stage.home.modes().values()) == ["disabled", "disabled"]


def test_a_role_that_replaces_the_protocol_is_named_and_still_has_no_native_memory(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version, Parent(role="mole")) as stage:
        stage.home.remember()
        (stage.home.codex / "agents").mkdir()
        (stage.home.codex / "agents" / "mole.toml").write_text(
            'name = "mole"\ndescription = "digs"\ndeveloper_instructions = "Dig."\n'
            "[features]\nmemories = true\n[memories]\nuse_memories = true\n"
        )
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("PARENT")
            child = stage.model.wait_for(is_child, deadline=SECONDS)
        assert told(child) == 0
        assert "Dig." in child.system
        assert "## Memory" not in child.system
        assert list(stage.home.modes().values()) == ["disabled", "disabled"]
        assert [text for text in codex.warnings if "role mole" in text] != []
