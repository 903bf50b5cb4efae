"""Ask an app-server several things at once, where the channel can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from amux.providers.base import PipelinedChannel
from amux.providers.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amux.providers.base import Channel, JsonObject

Call: TypeAlias = "tuple[str, JsonObject]"
Answer: TypeAlias = "JsonObject | RequestRefused"

ANSWER_SECONDS: Final = 20.0
START_SECONDS: Final = 60.0
"""A thread waits for its required MCP servers."""


def ask_all(channel: Channel, calls: Sequence[Call]) -> tuple[Answer, ...]:
    """Return each result or refusal, in order: a slow answer hides the time of the others."""
    if isinstance(channel, PipelinedChannel):
        return channel.request_all(calls, deadline=START_SECONDS)
    answers: list[Answer] = []
    for method, parameters in calls:
        try:
            answers.append(channel.request(method, parameters, deadline=START_SECONDS))
        except RequestRefused as error:
            answers.append(error)
    return tuple(answers)
