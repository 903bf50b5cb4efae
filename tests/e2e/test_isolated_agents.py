"""The real agents as another user: a turn with their own shell, and a memory write."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from amux.launcher.launch import launch
from amux.launcher.probe.model import Call, Say, ScriptedModel
from amux.launcher.probe.stage import STAGES
from amux.launcher.probe.talk import take_turn
from amux.launcher.probe.turns import revision_in
from amux.launcher.request import LaunchRequest
from fixtures import accounts
from fixtures.isolated import isolated_host, reachable_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, ToolOffer, Turn
    from fixtures.accounts import Account

pytestmark = [pytest.mark.root, pytest.mark.agents]

TOPIC: Final = "preferences/isolated.md"
LOOK: Final = (
    "echo uid=$(id -u) gid=$(id -g) umask=$(umask) home=$HOME cwd=$PWD; grep NoNewPrivs "
    "/proc/self/status; cat {home}/config.toml {home}/connections/*.json 2>&1; "
    "ls {home} {runs} 2>&1; "
    "echo AMUX=$AMUX_MEMORY_BINDING"
)
ARGUMENTS: Final = {
    "codex": (),
    "claude": ("--allowedTools=Bash",),
    "pi": ("--provider", "scripted", "--model", "scripted-1"),
}
NAMES: Final = {
    "codex": ("SCRIPTED_MODEL_KEY",),
    "claude": (
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    ),
    "pi": ("PI_OFFLINE",),
}


@dataclass(frozen=True, slots=True)
class Insider:
    """Looks around with the agent's own shell, then saves a document by the tools at hand."""

    look: str
    words: str

    def __call__(self, turn: Turn) -> Answer:
        """Decide the next step."""
        shell = turn.tool("bash", "Bash", "exec_command", "shell_command", "shell")
        if shell is None:
            return Say("no shell")
        if not turn.results:
            return _run(shell, self.look)
        upsert = turn.tool("memory_upsert")
        if len(turn.results) == 1:
            content = {"path": TOPIC, "content": self.words, "expected_revision": "absent"}
            if upsert is not None:
                return Call(upsert, content)
            return _run(
                shell,
                f"printf %s {shlex.quote(self.words)} | "
                f"amux memory upsert {TOPIC} --expected-revision absent",
            )
        saved = revision_in(turn.results[-1].text)
        return Say(f"{turn.results[0].text}\nsaved: {saved or turn.results[-1].text}")


def _run(shell: ToolOffer, command: str) -> Call:
    if shell.name.endswith("exec_command"):
        return Call(shell, {"cmd": command})
    if shell.name == "shell":
        return Call(shell, {"command": ["/bin/sh", "-c", command]})
    return Call(shell, {"command": command, "description": "look"})


@pytest.fixture(scope="module", name="host")
def _host() -> Iterator[Host]:
    with isolated_host() as made:
        yield made


@pytest.fixture(scope="module", name="targets")
def _targets() -> Iterator[dict[str, Account]]:
    """Make an account for each agent, all at once: a uid that is free is soon given again."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(accounts.account()) for name in ARGUMENTS}


@pytest.mark.parametrize(
    ("provider", "version", "principal"),
    [("codex", "0.153.4", "ann"), ("claude", "2.1.332", "ben"), ("pi", "0.74.2", "ann")],
)
def test_the_agent_works_as_the_target_and_what_it_saves_lands_in_its_principals_scope(
    host: Host, targets: dict[str, Account], provider: str, version: str, principal: str
) -> None:
    target = targets[provider]
    words = f"# Isolated\n\nSaved by {provider}.\n"
    look = LOOK.format(home=host.home, runs=host.runs)
    with (
        reachable_agent(provider, version) as agent,
        ScriptedModel(Insider(look, words)) as model,
    ):
        environment = STAGES[provider](target.home, model.url, path=agent.path)
        _give(target)
        request = LaunchRequest(
            provider=provider,
            arguments=ARGUMENTS[provider],
            environment=environment,
            pass_names=NAMES[provider],
            executable=agent.executable,
            user=target.name,
            principal=principal,
        )
        with launch(request, host) as run:
            said = take_turn(
                provider, run.channel, "Look around, then save.", native_id=run.report.native_id
            )
        again = replace(request, provider="", user=None, principal=None)
        with launch(replace(again, session=run.report.session), host) as resumed:
            kept = resumed.report
            heard = [
                one.observed for one in (*run.report.seen, *kept.seen) if "listed" in one.observed
            ]
    assert model.failures == []
    assert (kept.resumed, kept.isolation, kept.binding, kept.warnings) == (
        True,
        run.report.isolation,
        run.report.binding,
        (),
    )
    assert kept.instructions_digest == run.report.instructions_digest
    assert len(heard) == (0 if provider == "pi" else 2)
    assert f"uid={target.uid} gid={target.gid} umask=0077" in said, said
    assert f"home={target.home} cwd={target.home}" in said
    assert re.search(r"NoNewPrivs:\s+1", said)
    assert said.count("Permission denied") >= 3
    assert "amux_" not in said
    assert f"AMUX=principal:{principal}" in said
    assert re.search(r"saved: [0-9a-f]{64}", said), said
    assert run.report.isolation == f"user {target.name}"
    assert run.report.binding == f"principal:{principal}"
    (saved,) = (
        path
        for path in (host.home / "memory" / "users").glob(f"*/{TOPIC}")
        if path.read_text() == words
    )
    saved.unlink()
    assert list(host.runs.iterdir()) == []


def _give(target: Account) -> None:
    """Let the target own what was staged in its home."""
    for folder, names, files in os.walk(target.home):
        for path in (folder, *(f"{folder}/{name}" for name in (*names, *files))):
            os.chown(path, target.uid, target.gid)
