"""The text of sub-agents' own, which they get in place of the developer instructions.

Where Codex's configuration has one, amux sends it again with the protocol in it. A version that
does not know the key takes no file that has it, so none is sent there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.base import Evidence
from amux.providers.codex import effective_config, flags, threads
from amux.providers.codex.app_server import ask_all
from amux.providers.codex.flags import SUBAGENT_TEXT
from amux.providers.errors import BadArguments, RequestRefused

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, Grant, JsonObject

CONTROL: Final = "protocol in sub-agents"


def merge_text(
    answer: JsonObject, request: AgentRequest, grant: Grant, *, lasting: bool = False
) -> str | None:
    """Return the frozen text of a resume, or the configured one and the protocol.

    None where sub-agents get what their parent gets, and where a managed file stands above what
    amux could send. `lasting`: it is to hold also once a folder is trusted that is not so far.
    """
    if _above(answer) or SUBAGENT_TEXT in request.unknown:
        return None
    if grant.subagent_instructions is not None:
        return grant.subagent_instructions
    configured = effective_config.value_at(answer.get("config"), SUBAGENT_TEXT)
    if configured is None:
        if not lasting or not effective_config.awaiting_trust(answer, SUBAGENT_TEXT):
            return None
        configured = effective_config.developer_instructions(answer)
    return effective_config.append_protocol(str(configured), grant.protocol)


def text_arguments(text: str | None) -> tuple[str, ...]:
    """Return the override that carries it, if there is one; raise BadArguments for its length."""
    return () if text is None else flags.text_override(SUBAGENT_TEXT, text)


def evidence(
    answer: JsonObject, grant: Grant, text: str | None, source: str
) -> tuple[Evidence, ...]:
    """Say whether the protocol is in the text of sub-agents' own; nothing where there is none."""
    files = _above(answer)
    if files:
        effective = str(effective_config.value_at(answer.get("config"), SUBAGENT_TEXT) or "")
        observed = "appended" if grant.protocol in effective else "absent"
        return (Evidence(control=CONTROL, observed=observed, source=files[0]),)
    if text is None:
        return ()
    return (Evidence(control=CONTROL, observed="appended", source=source),)


def warnings(answer: JsonObject, grant: Grant) -> tuple[str, ...]:
    """Return a warning where the text stands above what amux can send, and lacks the protocol."""
    return tuple(
        f"{one.source} sets {SUBAGENT_TEXT} above what amux can pass, which replaces the memory "
        "protocol in sub-agents"
        for one in evidence(answer, grant, None, "")
        if one.observed == "absent"
    )


def refuse_own_text(channel: Channel, method: str, parameters: JsonObject) -> None:
    """Refuse one more thread whose folder has such a text, where the launch's has none.

    Codex reads the configuration anew for each thread, in the folder that the request names. What
    the launch sends with the thread outranks it. Raises BadArguments.
    """
    sent = parameters.get("config")
    if method not in threads.OPENING or not isinstance(sent, dict) or SUBAGENT_TEXT in sent:
        return
    cwd = parameters.get("cwd")
    asked: JsonObject = {"includeLayers": True} | ({"cwd": cwd} if isinstance(cwd, str) else {})
    (answer,) = ask_all(channel, (("config/read", asked),))
    if isinstance(answer, RequestRefused) or _above(answer):
        return  # what a managed file sets was said at the launch; Codex itself names a broken file
    found = effective_config.value_at(answer.get("config"), SUBAGENT_TEXT) is not None
    if found or effective_config.awaiting_trust(answer, SUBAGENT_TEXT):
        raise BadArguments(
            f"Codex's configuration in {cwd or 'its home'} sets {SUBAGENT_TEXT}, which would take "
            "the memory protocol from the sub-agents of this thread; launch there, where amux adds "
            "the protocol to it, or remove it"
        )


def _above(answer: JsonObject) -> tuple[str, ...]:
    """Name the layers above the flags that set it, highest first."""
    return effective_config.layers_above_flags(answer, SUBAGENT_TEXT)
