"""What a conversation itself shows: the second proof, beside the answers asked before it began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NATIVE_MEMORY: Final = "native memory"
PROTOCOL: Final = "protocol"
MEMORY_TOOLS: Final = "memory tools"
INSTRUCTIONS: Final = "instructions"
"""Names of `Sighting.control` that several agents share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One thing that was seen in a conversation.

    `control` names what was looked at, `observed` what it was (`absent`, `once`, `2 times`, …),
    `source` where it stood. `turn` counts the turns of this run that were over when it was seen; 0
    is before the first. `contradicts` is one sentence for people where it contradicts what the
    launch reported, empty where it agrees.
    """

    control: str
    observed: str
    source: str
    turn: int = 0
    contradicts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcripts:
    """Where an agent keeps a conversation, as patterns of absolute paths; `*` matches in a segment.

    The newest match of `main` is the conversation itself; `beside` matches what belongs to it, such
    as the conversations of its sub-agents.
    """

    main: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPart:
    """Whole lines that were appended to one file of a conversation.

    `path` is the file. `main` is false for a file beside it. `ours` says that a run of amux wrote
    them; otherwise they were written without amux between two runs. `from_start` says that they
    begin with the file's first line. `truncated`: there were more, and these are the last.
    `protocol` and `instructions` are the texts that the session froze, `native_id` the agent's own
    id of the conversation.
    """

    path: str
    content: bytes
    protocol: str
    instructions: str
    ours: bool
    native_id: str = ""
    main: bool = True
    from_start: bool = True
    truncated: bool = False
