"""Scripted models that decide from what the agent sent them, as a real model would.

Each looks for the protocol in its instructions, for the tools it needs among those offered, and
for revisions in the results of its own calls. What is missing is said in the answer, and the
demo then fails: nothing here knows what the document holds before a tool has told it.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.launcher.probe.model import Call, Say
from amux.launcher.probe.turns import revision_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.probe.model import Answer, ToolOffer, Turn

TOPIC: Final = "preferences/communication.md"
QUERY: Final = "answers language"
REMEMBERED: Final = "# Communication\n\n- Answers: short, in British English.\n"
CORRECTED_WORD: Final = "Canadian"
WRONG_WORD: Final = "British"

_TEXT: Final = re.compile(r'"text":\s*"((?:[^"\\]|\\.)*)"')


def document_in(text: str) -> str | None:
    """Return the document text in a get or show result, however deep its JSON was quoted."""
    plain = text.replace('\\"', '"').replace("\\\\", "\\") if '\\"text\\"' in text else text
    found = _TEXT.search(plain)
    return None if found is None else str(json.loads(f'"{found.group(1)}"'))


def refuses(turn: Turn) -> str | None:
    """Say what this turn lacks for memory to work at all."""
    if "MEMORY.md" not in turn.system or "amux" not in turn.system:
        return "the instructions hold no memory protocol"
    return None


def _idle(turn: Turn) -> bool:
    """Say whether this is one of the agent's own side requests (a title, a summary)."""
    return not turn.tools


@dataclass(frozen=True, slots=True)
class Rememberer:
    """Reads the topic to learn its revision, then saves a preference through the MCP tools."""

    def __call__(self, turn: Turn) -> Answer:
        """Decide the next step."""
        return _with_tools(turn, ("memory_get", "memory_upsert"), self._step)

    def _step(self, turn: Turn, get: ToolOffer, upsert: ToolOffer) -> Answer:
        if not turn.results:
            return Call(get, {"path": TOPIC})
        revision = revision_in(turn.results[-1].text)
        if revision is None:
            return Say(f"The tool brought no revision: {turn.results[-1].text[:500]}")
        if len(turn.results) == 1:
            content = {"path": TOPIC, "content": REMEMBERED, "expected_revision": revision}
            return Call(upsert, content)
        return Say(f"Saved as {TOPIC}, revision {revision}.")


@dataclass(frozen=True, slots=True)
class Recaller:
    """Searches, reads the best match, and answers with what it says."""

    def __call__(self, turn: Turn) -> Answer:
        """Decide the next step."""
        return _with_tools(turn, ("memory_search", "memory_get"), self._step)

    def _step(self, turn: Turn, search: ToolOffer, get: ToolOffer) -> Answer:
        if not turn.results:
            return Call(search, {"query": QUERY})
        if len(turn.results) == 1:
            path = re.search(r'\\?"path\\?":\s*\\?"([^"\\]+\.md)', turn.results[0].text)
            if path is None:
                return Say(f"The search found nothing: {turn.results[0].text[:500]}")
            return Call(get, {"path": path.group(1)})
        document = document_in(turn.results[-1].text)
        if document is None:
            return Say(f"The tool brought no document: {turn.results[-1].text[:500]}")
        return Say(f"From memory: {document}")


@dataclass(frozen=True, slots=True)
class Corrector:
    """Reads and corrects the document through a shell and the `amux` command."""

    def __call__(self, turn: Turn) -> Answer:
        """Decide the next step."""
        if _idle(turn):
            return Say("Memory demo")
        problem = refuses(turn)
        if problem is None and "amux memory" not in turn.system:
            problem = "the protocol does not name the command"
        shell = turn.tool("bash", "Bash", "exec_command", "shell")
        if problem is None and shell is None:
            problem = f"no shell among the tools: {[offer.full_name for offer in turn.tools]}"
        if problem is not None or shell is None:
            return Say(f"I cannot correct this: {problem}.")
        return self._step(turn, shell)

    def _step(self, turn: Turn, shell: ToolOffer) -> Answer:
        if not turn.results:
            return Call(shell, {"command": f"amux memory show {TOPIC}"})
        seen = turn.results[-1].text
        revision = revision_in(seen)
        if len(turn.results) == 1:
            document = document_in(seen)
            if revision is None or document is None:
                return Say(f"The command showed no document: {seen[:500]}")
            corrected = document.replace(WRONG_WORD, CORRECTED_WORD)
            command = (
                f"printf %s {shlex.quote(corrected)} | "
                f"amux memory upsert {TOPIC} --expected-revision {revision}"
            )
            return Call(shell, {"command": command})
        if revision is None:
            return Say(f"The correction failed: {seen[:500]}")
        return Say(f"Corrected, revision {revision}.")


def _with_tools(
    turn: Turn,
    names: tuple[str, str],
    step: Callable[[Turn, ToolOffer, ToolOffer], Answer],
) -> Answer:
    """Take the step if the protocol and both tools are there, else say what is missing."""
    if _idle(turn):
        return Say("Memory demo")
    problem = refuses(turn)
    first, second = (turn.tool(name) for name in names)
    if problem is None and (first is None or second is None):
        offered = [offer.full_name for offer in turn.tools]
        problem = f"{names[0]} and {names[1]} are not among the tools: {offered}"
    if problem is not None or first is None or second is None:
        return Say(f"I cannot use memory: {problem}.")
    return step(turn, first, second)
