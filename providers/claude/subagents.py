"""Whether a launch's text reaches sub-agents, to whom Claude does not pass the main append on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.base import Evidence
from amux.providers.claude import arguments as argv
from amux.providers.claude.plan import appends_for_subagents
from amux.providers.claude.settings import HOOKS_OFF, stops_hooks

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, JsonObject

CONTROL: Final = "protocol in sub-agents"
ABSENT: Final = "absent"
FLAGS: Final = "flagSettings"
HOOKLESS: Final = ("--bare", "--safe-mode")
SIMPLE: Final = "CLAUDE_CODE_SIMPLE"


def protocol_evidence(
    request: AgentRequest, answer: JsonObject, *, asked_before: bool
) -> tuple[Evidence, tuple[str, ...]]:
    """Say how sub-agents get the protocol, from the answer to `get_settings`; and warnings.

    A pre-flight (`asked_before`) runs without hooks itself, and says by a variable whether the
    caller's own settings do.
    """
    items = argv.parse(request.arguments)
    version = f"Claude {request.version}"
    if appends_for_subagents(request, items):
        return Evidence(control=CONTROL, observed="appended", source=version), ()
    against = _against(request, items, answer, asked_before=asked_before)
    if against is None:
        hook = "by a SubagentStart hook"
        source = f"{version}, get_settings: no source stops hooks"
        return Evidence(control=CONTROL, observed=hook, source=source), ()
    warning = f"sub-agents have the memory tools, not the protocol: {against} switches hooks off"
    return Evidence(control=CONTROL, observed=ABSENT, source=f"hooks off by {against}"), (warning,)


def _against(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    answer: JsonObject,
    *,
    asked_before: bool,
) -> str | None:
    """Name what keeps a hook of the launch from running."""
    for option in HOOKLESS:
        if argv.given(items, option):
            return option
    if request.environment.get(SIMPLE, "").strip().lower() in {"1", "true", "yes", "on"}:
        return SIMPLE
    sources = answer.get("sources")
    for one in sources if isinstance(sources, list) else []:
        found = one.get("settings") if isinstance(one, dict) else None
        if not isinstance(found, dict):
            continue
        name = str(one.get("source"))
        quiet = asked_before and name == FLAGS
        env = found.get("env")
        if quiet and isinstance(env, dict) and HOOKS_OFF in env:
            return "--settings"
        if not quiet and stops_hooks(found):
            return name
    return None
