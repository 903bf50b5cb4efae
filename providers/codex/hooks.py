"""Hooks that are active for a launch: each may keep a memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.codex.effective_config import objects
from amux.providers.errors import RequestRefused

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest
    from amux.providers.codex.app_server import Answer, Call

BYPASS: Final = "--dangerously-bypass-hook-trust"
HOOKS_THAT_RUN: Final = frozenset({"trusted", "managed", None})
HOOKS_WITHOUT_TRUST: Final = frozenset({"untrusted", "modified"})


def list_request(request: AgentRequest) -> Call:
    """Return the request for the hooks of the launch's folder."""
    return "hooks/list", {"cwds": [request.cwd]}


def warnings(request: AgentRequest, answer: Answer) -> tuple[str, ...]:
    """Name each hook that is active for the launch: a hook can keep a memory of its own.

    A command's words after the first are left out, since they may hold a credential.
    """
    if isinstance(answer, RequestRefused):
        return (f"Codex {request.version} does not list its hooks; they may keep other memories",)
    found: list[str] = []
    active = HOOKS_THAT_RUN | (HOOKS_WITHOUT_TRUST if BYPASS in request.arguments else set())
    for place in objects(answer.get("data")):
        for hook in objects(place.get("hooks")):
            if hook.get("enabled") and hook.get("trustStatus") in active:
                program = str(hook.get("command") or hook.get("handlerType")).split(" ")[0]
                found.append(
                    f"hook {hook.get('eventName')} ({program}, {hook.get('trustStatus')}) of "
                    f"{hook.get('sourcePath') or hook.get('pluginId') or hook.get('source')} is "
                    "active and may keep a memory of its own; --without-hooks stops all hooks"
                )
    return tuple(found)
