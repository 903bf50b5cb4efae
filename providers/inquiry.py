"""When an agent can be asked, on its own channel, what its conversation's context holds.

Settings say what should be in it; the agent's answer between two turns says what is.
"""

from __future__ import annotations

from enum import StrEnum


class Moment(StrEnum):
    """What a message of a channel, in either direction, means for asking.

    TURN_BEGUN and TURN_OVER: in between the agent is at work and is not asked. COMPACTED: the
    context was made anew, so what was answered before is about another one.
    """

    TURN_BEGUN = "turn begun"
    TURN_OVER = "turn over"
    COMPACTED = "compacted"
