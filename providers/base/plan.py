"""What a provider answers: what it can do, what to start, and what the agent confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amux.materializer.values import PlannedFile
    from amux.providers.base.request import Mode, Tools

VERSION: Final = "version"
"""The control whose evidence is the version that the agent itself says that it is."""


class Framing(StrEnum):
    """What a channel carries: JSON-RPC lines, other JSON lines, plain lines, or raw bytes.

    WEBSOCKET: JSON-RPC messages on the Unix socket that the plan names.
    """

    JSON_RPC = "json-rpc"
    WEBSOCKET = "websocket"
    JSON_LINES = "json-lines"
    LINES = "lines"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the provider can do. `missing` names, for people, what a bound launch would lack."""

    memory: bool
    tools: Tools
    modes: frozenset[Mode]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """A short run of the same binary that must confirm the controls before the agent starts.

    `environment` is added to the request's; `files` are in place for its time only.
    `remember` digests everything that the answer depends on; the launcher keeps the answer under
    it. None: ask each time.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    framing: Framing
    files: tuple[PlannedFile, ...] = ()
    remember: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How to start the agent.

    `environment` is added to the request's, `without` removed from it. `server` is the argv of a
    second process that must run beside the agent (an app-server beside its screen); the channel
    is then the server's, on the Unix socket `socket`, which it makes. The instructions and
    `native_id` where they are known before the start. `driven`: in a mode where stdio is the
    caller's, a program of the caller's drives the agent with JSON lines; the launcher carries them,
    each held by `outgoing`.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    without: frozenset[str] = frozenset()
    files: tuple[PlannedFile, ...] = ()
    framing: Framing = Framing.RAW
    driven: bool = False
    server: tuple[str, ...] | None = None
    socket: str | None = None
    instructions: str | None = None
    subagent_instructions: str | None = None
    native_id: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One native control, and what the agent itself answered about it.

    `asked` is when a remembered answer was given (RFC 3339, UTC); empty: asked by this launch.
    """

    control: str
    observed: str
    source: str
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a conversation with the agent established.

    `instructions` is the merged text that the session freezes, `subagent_instructions` another one
    for its sub-agents, where they do not get the same. `native_id` is the agent's own id of the
    conversation, where it has one by now. `version` is what the agent itself says that it
    is, where it does: a launcher that asked another one plans anew. `foreign`: the conversation did
    not begin in this session, so that what an earlier memory put into it is there.
    """

    evidence: tuple[Evidence, ...] = ()
    instructions: str | None = None
    subagent_instructions: str | None = None
    native_id: str | None = None
    warnings: tuple[str, ...] = ()
    version: str = ""
    foreign: bool = False
