"""What a provider is: the plugin that knows one agent. Everything that its author imports is here.

A provider is pure. It computes plans from values and asks the agent questions over a channel that
it is handed; it opens no file, starts no process, reads neither clock nor environment. The launcher
calls it in the phases of a launch, and `Provider` has its methods in that order:

    before memory   which conversation is meant, and which version of the agent runs
    resumed         what was added to the conversation since amux last saw it
    planning        which files the plan depends on, then the plan
    pre-flight      where the plan wants one: a short run of the agent that is asked first
    starting        the handshake on the agent's own channel
    running         requests, messages and transcripts of the run
    ended           which conversation a run had that told no id of one

Register a provider through the entry-point group `amux.providers`.
"""

from amux.providers.base.channel import Channel, JsonObject, PipelinedChannel
from amux.providers.base.plan import (
    VERSION,
    Capabilities,
    Confirmed,
    Evidence,
    Framing,
    LaunchPlan,
    Preflight,
)
from amux.providers.base.provider import Provider
from amux.providers.base.request import (
    MAX_FACT_BYTES,
    AgentRequest,
    Facts,
    FileSearch,
    Grant,
    Mode,
    NativeResume,
    Tools,
)
from amux.providers.base.shutdown import Shutdown
from amux.providers.base.transcript import (
    INSTRUCTIONS,
    MEMORY_TOOLS,
    NATIVE_MEMORY,
    PROTOCOL,
    Sighting,
    TranscriptPart,
    Transcripts,
)
from amux.providers.base.turn import TurnEvent

__all__ = [
    "INSTRUCTIONS",
    "MAX_FACT_BYTES",
    "MEMORY_TOOLS",
    "NATIVE_MEMORY",
    "PROTOCOL",
    "VERSION",
    "AgentRequest",
    "Capabilities",
    "Channel",
    "Confirmed",
    "Evidence",
    "Facts",
    "FileSearch",
    "Framing",
    "Grant",
    "JsonObject",
    "LaunchPlan",
    "Mode",
    "NativeResume",
    "PipelinedChannel",
    "Preflight",
    "Provider",
    "Shutdown",
    "Sighting",
    "Tools",
    "TranscriptPart",
    "Transcripts",
    "TurnEvent",
]
