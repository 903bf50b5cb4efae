"""When an agent can be asked, on its own channel, what its conversation's context holds.

Settings say what should be in it; the agent's answer between two turns says what is.
"""

from __future__ import annotations

from enum import StrEnum


class TurnEvent(StrEnum):
    """What a message of a channel, in either direction, says of the agent's turns.

    Between BEGUN and ENDED the agent is at work and is not asked. COMPACTED: the context was made
    anew, so what was answered before is about another one.
    """

    BEGUN = "turn begun"
    ENDED = "turn ended"
    COMPACTED = "compacted"
