"""A scripted model that does what each prompt of the probe names, with the tools it is offered."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amux.launcher.probe.turns import Call, Compaction, Say, revision_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.probe.turns import Answer, JsonObject, ToolOffer, Turn

DOCUMENT: Final = "probe/note.md"
CONTENT: Final = "# Probe\n\n- tea\n"
PROMPT: Final = "probe step: {step}"
SHELLS: Final = ("exec_command", "Bash", "bash", "shell")
SPAWNERS: Final = ("spawn_agent", "Agent", "Task")
ENVIRONMENT: Final = 'echo "binding=$AMUX_MEMORY_BINDING amux=$(command -v amux)"'
CHILD: Final = "probe child: say hello"

_STEP: Final = re.compile(r"probe step: (\w+)")


@dataclass
class Prober:
    """Carries out one step a turn; `results` keeps what each step's tool calls brought back.

    `kind` is the kind of sub-agent that is started; empty: the agent's own.
    """

    cli: bool
    kind: str = ""
    results: dict[str, list[str]] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    _begun: dict[str, int] = field(default_factory=dict)

    def __call__(self, turn: Turn) -> Answer:
        """Decide the next answer."""
        last = (turn.body.get("input") or [{}])[-1]
        if isinstance(last, dict) and last.get("type") == "compaction_trigger":
            return Compaction("compacted")
        step = step_of(turn)
        if step is None or not turn.tools:
            return Say("ok")
        before = self._begun.setdefault(step, len(turn.results))
        seen = [result.text for result in turn.results[before:]]
        self.results[step] = seen
        call = self._next(step, turn, seen)
        return Say(f"{step} done") if call is None else call

    def _next(self, step: str, turn: Turn, seen: list[str]) -> Call | None:
        if step == "tools":
            return self._memory(turn, seen)
        if step == "environment" and not seen:
            return self._shell(turn, ENVIRONMENT)
        if step.startswith("child") and not seen:
            return self._spawn(turn)
        return None

    def _memory(self, turn: Turn, seen: list[str]) -> Call | None:
        revision = revision_in(seen[-1]) if seen else None
        printed = f"printf '{CONTENT.encode('unicode_escape').decode()}'"
        calls: list[tuple[str, JsonObject, str]] = [
            ("memory_search", {"query": "tea"}, "amux memory search tea"),
            (
                "memory_upsert",
                {"path": DOCUMENT, "content": CONTENT, "expected_revision": "absent"},
                f"{printed} | amux memory upsert {DOCUMENT} --expected-revision absent",
            ),
            ("memory_get", {"path": DOCUMENT}, f"amux memory show {DOCUMENT}"),
            (
                "memory_forget",
                {"path": DOCUMENT, "expected_revision": revision or ""},
                f"amux memory forget {DOCUMENT} --expected-revision {revision}",
            ),
        ]
        if len(seen) == len(calls):
            return None
        name, arguments, command = calls[len(seen)]
        if self.cli:
            return self._shell(turn, command)
        return self._call(turn, (name,), arguments)

    def _shell(self, turn: Turn, command: str) -> Call | None:
        offer = turn.tool(*SHELLS)
        key = "cmd" if offer is not None and offer.name == "exec_command" else "command"
        return self._call(turn, SHELLS, {key: command})

    def _spawn(self, turn: Turn) -> Call | None:
        arguments = {
            "message": CHILD,
            "prompt": CHILD,
            "description": "probe",
            "subagent_type": self.kind or "general-purpose",
            "run_in_background": False,
            "task_name": "probe",
            "fork_turns": "none",
            **({"agent_type": self.kind} if self.kind else {}),
        }
        offer = turn.tool(*SPAWNERS)
        wanted = _properties(turn, offer)
        return self._call(turn, SPAWNERS, {k: v for k, v in arguments.items() if k in wanted})

    def _call(self, turn: Turn, names: tuple[str, ...], arguments: JsonObject) -> Call | None:
        offer: ToolOffer | None = turn.tool(*names)
        if offer is None:
            self.lacking.append(names[0])
            return None
        return Call(offer, arguments)


def step_of(turn: Turn) -> str | None:
    """Return the step that the last prompt of the probe names."""
    for text in reversed(turn.user):
        found = _STEP.findall(text)
        if found:
            return str(found[-1])
    return None


def _properties(turn: Turn, offer: ToolOffer | None) -> set[str]:
    """Return the names of the parameters that an offered tool takes; some take no other."""
    for tool in _tools(turn.body.get("tools")):
        if offer is not None and tool.get("name") == offer.name:
            schema = tool.get("parameters") or tool.get("input_schema") or {}
            return set(schema.get("properties") or {})
    return set()


def _tools(value: object) -> Iterator[JsonObject]:
    """Yield every tool of a request, also those that an agent groups."""
    for tool in value if isinstance(value, list) else ():
        if isinstance(tool, dict):
            yield tool
            yield from _tools(tool.get("tools"))
