"""The parameters with which a thread is opened: under a bound launch, amux owns them.

A `config` object in `thread/start`, `thread/resume` or `thread/fork` beats every flag of the
launch, and `config/read` does not show it. So a supervisor's object is read, taken apart into
dotted keys (a whole table would replace ours), refused where it reaches for what amux owns, and
sent with the four off values in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from amux.providers.codex.flags import MEMORY_OFF, SERVER, SUBAGENT_TEXT, toml_key
from amux.providers.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import JsonObject

OPENING: Final = frozenset({"thread/start", "thread/resume", "thread/fork"})
MEMORY_MODE: Final = "thread/memoryMode/set"
REVIEW: Final = "review/start"
_MULTI_AGENT: Final = "features.multi_agent_v2"
_TABLES: Final = frozenset({"features", "memories", "mcp_servers"})
_OWNED: Final = ("memories", "developer_instructions", f"mcp_servers.{SERVER}")
_OWNED_FEATURES: Final = ("features.memories", "features.memory_tool", "features.code_mode")


def read_config(text: str, *, bound: bool = True) -> JsonObject:
    """Read a supervisor's `config` object from JSON; raise BadArguments."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadArguments(f"the thread config is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadArguments("the thread config is not a JSON object")
    return bind_config(value) if bound else value


def bind_config(config: JsonObject) -> JsonObject:
    """Return the object as dotted keys with native memory off; raise BadArguments."""
    if SUBAGENT_TEXT in _names(config):
        raise BadArguments(
            f"the thread config sets {SUBAGENT_TEXT}, which would take the memory protocol from "
            "the thread's sub-agents; leave it out, and set it in Codex's config.toml or by -c, "
            "where amux adds the protocol to it"
        )
    flat = _flatten(config)
    for name, value in flat.items():
        for owned in (*_OWNED, *_OWNED_FEATURES):
            if (name == owned or name.startswith(f"{owned}.")) and not (
                name in MEMORY_OFF and value is False
            ):
                raise BadArguments(
                    f"the thread config sets {name}, which amux owns in a launch with memory; "
                    "leave it out"
                )
    return {**flat, **MEMORY_OFF}


def with_subagent_text(config: JsonObject, text: str | None) -> JsonObject:
    """Return an object that `own` returned with the text of sub-agents in it, if there is one."""
    if text is None:
        return config
    kept = dict(config)
    if _MULTI_AGENT in kept:  # a switch in the place of the table that the text goes into
        kept[f"{_MULTI_AGENT}.enabled"] = kept.pop(_MULTI_AGENT)
    return {**kept, SUBAGENT_TEXT: text}


def bind_request(
    method: str, parameters: JsonObject, instructions: str, subagents: str | None = None
) -> JsonObject:
    """Return a supervisor's own parameters for one more thread, under the launch's controls.

    Raises BadArguments where they would switch native memory on, or begin a thread of which Codex
    takes the instructions from its configuration alone.
    """
    if method == MEMORY_MODE and parameters.get("mode") != "disabled":
        raise BadArguments("amux keeps memory mode disabled in a launch with memory")
    if method == REVIEW and parameters.get("delivery") == "detached":
        raise BadArguments(
            "a detached review begins a conversation that does not get the memory protocol; ask "
            'for it with the delivery "inline"'
        )
    if method not in OPENING:
        return parameters
    given = parameters.get("config")
    config = bind_config(given) if isinstance(given, dict) else dict(MEMORY_OFF)
    config = with_subagent_text(config, subagents)
    return {**parameters, "config": config, "developerInstructions": instructions}


def continued_thread(method: str, parameters: JsonObject) -> str | None:
    """Return the id of the thread that a request goes on with; None where it goes on with none.

    Raises BadArguments where the conversation is given as a file or as text.
    """
    if method not in OPENING or method == "thread/start":
        return None
    for name in ("path", "history"):
        if parameters.get(name):
            raise BadArguments(
                f"{method} with `{name}` goes on with a conversation that amux cannot know; name "
                "one of this session by its threadId"
            )
    return str(parameters.get("threadId"))


def _names(config: JsonObject, above: str = "") -> Iterator[str]:
    """Yield the dotted name of every table and value, however it is nested, dotted or quoted."""
    for name, value in config.items():
        segments = (segment.strip().strip("\"'") for segment in name.split("."))
        dotted = f"{above}{'.'.join(segments)}"
        yield dotted
        if isinstance(value, dict):
            yield from _names(value, f"{dotted}.")


def _flatten(config: JsonObject) -> JsonObject:
    """Take whole tables apart, so that they do not replace what the launch set in them."""
    flat: JsonObject = {}
    for name, value in config.items():
        if name in _TABLES and isinstance(value, dict):
            flat |= {f"{name}.{toml_key(inner)}": item for inner, item in value.items()}
        elif name in _TABLES:
            raise BadArguments(f"the thread config's {name} is not a table")
        else:
            flat[name] = value
    table = flat.get(_MULTI_AGENT)
    if isinstance(table, dict):
        del flat[_MULTI_AGENT]
        flat |= {f"{_MULTI_AGENT}.{toml_key(inner)}": item for inner, item in table.items()}
    return flat
