"""Which memory tools Claude offers, where rules or a main agent may leave some out.

`get_context_usage` lists them before any turn, from 2.1.112 on. Claude counts tokens for it, some
25 requests to its API, so it is asked before a turn only where there is a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.base import Evidence
from amux.providers.claude import arguments as argv
from amux.providers.claude import context
from amux.providers.claude.context import USAGE
from amux.providers.claude.evidence import CONNECTED, TOOLS, ask
from amux.providers.claude.tools import concerns_tools
from amux.providers.errors import NotConfirmed, RequestRefused

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Channel, JsonObject

USAGE_ID: Final = "amux-usage"
USAGE_DEADLINE: Final = 60.0
TIMEOUT: Final = "MCP_TIMEOUT"
MANAGED_ONLY: Final = "allowManagedPermissionRulesOnly"
HERE: Final = frozenset([CONNECTED, "allowed"])


def offered_evidence(
    channel: Channel, request: AgentRequest, answer: JsonObject, seen: Evidence
) -> tuple[Evidence, tuple[str, ...]]:
    """Return what is offered of a server that is there, and warnings; ask only in doubt.

    `answer` is that of `get_settings`, `seen` what is known of the server.
    """
    if seen.observed not in HERE:
        return seen, ()
    unpermitted = _unpermitted(answer)
    effective = answer.get("effective")
    doubt = _doubt(request, effective if isinstance(effective, dict) else {})
    if doubt is None:
        return seen, unpermitted
    try:
        usage = ask(channel, USAGE, USAGE_ID, deadline=USAGE_DEADLINE)
    except RequestRefused as error:
        warning = f"{doubt} may leave the memory tools out, and this version does not tell"
        return Evidence(control=TOOLS, observed="not told", source=f"{USAGE}: {error.answer}"), (
            warning,
        )
    native = context.native_memory_files(usage)
    if native:
        message = f"Claude has its own memory in its context: {', '.join(native)}"
        raise NotConfirmed(message, answer=f"{USAGE} {context.FILES}")
    mine = len(context.memory_tools(usage) or ())
    if mine:
        known = Evidence(control=TOOLS, observed=f"{seen.observed}, {mine} offered", source=USAGE)
        return known, unpermitted
    warning = f"Claude offers none of the memory tools: {doubt} leaves them out"
    return Evidence(control=TOOLS, observed="none offered", source=f"{USAGE}: {doubt}"), (warning,)


def _doubt(request: AgentRequest, effective: JsonObject) -> str | None:
    """Name what may leave memory tools out."""
    items = argv.parse(request.arguments)
    permissions = effective.get("permissions")
    denied = permissions.get("deny") if isinstance(permissions, dict) else None
    for rule in denied if isinstance(denied, list) else ():
        if concerns_tools(str(rule)):
            return f"the rule {rule} (permissions.deny)"
    for value in argv.values(items, argv.DISALLOWED):
        if any(concerns_tools(rule) for rule in value.replace(",", " ").split()):
            return f"{argv.DISALLOWED} {value}"
    named = argv.values(items, "--agent")
    agent = named[-1] if named else effective.get("agent")
    if agent:
        return f"the main agent {agent}"
    env = effective.get("env")
    seconds = (env if isinstance(env, dict) else {}).get(TIMEOUT, request.environment.get(TIMEOUT))
    return None if seconds is None else f"{TIMEOUT}={seconds}"


def _unpermitted(answer: JsonObject) -> tuple[str, ...]:
    """Warn where managed settings let only their own rules count, and none of them permits ours."""
    sources = answer.get("sources")
    for one in sources if isinstance(sources, list) else []:
        found = one.get("settings") if isinstance(one, dict) else None
        if not isinstance(found, dict) or found.get(MANAGED_ONLY) is not True:
            continue
        permissions = found.get("permissions")
        allowed = permissions.get("allow") if isinstance(permissions, dict) else None
        if not any(
            concerns_tools(str(rule)) for rule in (allowed if isinstance(allowed, list) else ())
        ):
            warning = (
                f"{one.get('source')} let only their own permission rules count ({MANAGED_ONLY}): "
                "Claude asks before each call of the memory tools, and refuses it where nobody can "
                "be asked; let them allow mcp__amux"
            )
            return (warning,)
    return ()
