"""What a provider is given to compute from: the launch, its memory, and files that were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FACT_BYTES: Final = 1024 * 1024
"""How much of a file is read for a provider; one of this size or more may be longer."""


class Mode(StrEnum):
    """Who talks to the agent.

    STREAM: the supervisor, over a structured channel. TERMINAL: a person, on the agent's own
    screen. PASSTHROUGH: a program or pipe; stdio is handed through untouched.
    """

    STREAM = "stream"
    TERMINAL = "terminal"
    PASSTHROUGH = "passthrough"


class Tools(StrEnum):
    """How the agent reaches memory: MCP tools, the `amux memory` command, or not at all."""

    MCP = "mcp"
    CLI = "cli"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeResume:
    """Which native conversation to continue, and whether as a fork of it.

    `native_id` is empty where a person picks the conversation on the screen.
    `aliases` are further names that it may have been recorded under, `place` the file that holds
    it, where that is how the agent is told.
    """

    native_id: str
    fork: bool = False
    aliases: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """What a provider may know of a launch. Paths are absolute and as the target sees them.

    `command` starts the agent (interpreter and script where the agent is a script).
    `environment` is the agent's, before the provider's own additions; `options` are among those
    that the provider declares. `interpreter` is the Python that amux itself runs on.
    `fresh_id` is a random UUID that a provider may give to a new native conversation. `unknown`
    holds those of amux's own flags that this very agent was seen not to know. `conversations` are
    the native ids of the session's own conversations so far, `began` when the launch began, in
    seconds since the epoch. `outer_homes` are the names of the caller's home where the agent has
    another one and `cwd` is in the caller's, or is it.
    """

    command: tuple[str, ...]
    version: str
    arguments: tuple[str, ...]
    mode: Mode
    cwd: str
    home: str
    environment: Mapping[str, str]
    interpreter: str = ""
    fresh_id: str = ""
    resume: NativeResume | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    conversations: frozenset[str] = frozenset()
    began: float = 0.0
    outer_homes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Memory for one launch. `instructions` is set on a resume: the frozen text, byte for byte.

    So is `subagent_instructions`, where the session's sub-agents get a text of their own instead.

    `cli` is the argv of the agent-side command, `connection` the path of its connection file,
    `config` and `work` the run's folders (`amux.materializer.values.RunPaths`). `mcp` is the argv
    of the MCP server, with the list of tools that the session began with.
    """

    binding: str
    protocol: str
    tools: Tools
    cli: tuple[str, ...]
    connection: str
    config: str
    work: str
    tool_list: str = "1"
    instructions: str | None = None
    subagent_instructions: str | None = None

    @property
    def mcp(self) -> tuple[str, ...]:
        """Return the argv of the MCP server."""
        return (*self.cli, "mcp", "--tools", self.tool_list)


@dataclass(frozen=True, slots=True)
class FileSearch:
    """A byte string to look for in a whole file, however long; `FOLDER/*/NAME` is any such file."""

    path: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What the launcher read for a provider: file contents by path; None where there is no file.

    A path that ends in `/` is a folder: its content names each entry, its size and its time, a
    line each. `FOLDER/*.ending` holds name, NUL, content, NUL of each such file. `found` holds
    the searches that found their text.
    """

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    found: frozenset[FileSearch] = frozenset()
