"""Codex's command lines: an app-server, `codex exec`, or a screen with an app-server beside it.

Memory and its tools are launch-local overrides in each. The latter two ask an app-server of the
same binary and flags first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.providers import outer_home
from amux.providers.base import Framing, LaunchPlan, Mode, Preflight
from amux.providers.codex import flags, handshake, native_memory, roles, subagents, threads, version
from amux.providers.codex.arguments import read
from amux.providers.errors import BadArguments, require_utf8_folder

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Confirmed, Facts, Grant
    from amux.providers.codex.arguments import CallerArguments

OUTER: Final = ("AGENTS.override.md", "AGENTS.md")
"""What Codex reads in each folder from a project's root down to the one it is started in."""
SOCKET: Final = "codex.sock"
WITHOUT_HOOKS: Final = "without-hooks"
_TRUE: Final = frozenset({"", "1", "true", "yes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """What each plan with memory is made of.

    `ours` are the flags with which native memory is off and the tools are there; `disabled` those
    among them that the caller's `--enable` makes necessary. `server` is an app-server's whole argv.
    """

    request: AgentRequest
    caller: CallerArguments
    grant: Grant
    ours: tuple[str, ...]
    disabled: tuple[str, ...]
    server: tuple[str, ...]
    warnings: tuple[str, ...]


def caller_arguments(request: AgentRequest, *, bound: bool) -> CallerArguments:
    """Read the caller's arguments; raise BadArguments for what Codex cannot be started with."""
    require_utf8_folder("Codex", request.cwd)
    caller = read(request.arguments)
    if request.mode is Mode.STREAM:
        caller.check_server()
        given = request.options.get(handshake.THREAD_CONFIG)
        if given is not None:
            threads.read_config(given, bound=bound)
    return caller


def without_memory(request: AgentRequest, caller: CallerArguments, facts: Facts) -> LaunchPlan:
    """Plan a launch without memory: Codex as it is."""
    hooks, warnings = _hooks(request), _outer(request, facts)
    if request.mode is Mode.STREAM:
        argv = (*request.command, "app-server", *caller.overrides(), *hooks)
        return LaunchPlan(argv=argv, framing=Framing.JSON_RPC, warnings=warnings)
    words = caller.resuming(request.resume)
    return LaunchPlan(argv=(*request.command, *words.ending_with(hooks)), warnings=warnings)


def with_memory(
    request: AgentRequest,
    caller: CallerArguments,
    grant: Grant,
    facts: Facts,
    confirmed: Confirmed | None,
) -> LaunchPlan | Preflight:
    """Plan a launch with memory; without a channel of JSON, its pre-flight first."""
    bound = _bound(request, caller, grant, facts)
    if request.mode is Mode.STREAM:
        return LaunchPlan(argv=bound.server, framing=Framing.JSON_RPC, warnings=bound.warnings)
    _check_channelless(request, caller)
    if confirmed is None or confirmed.instructions is None:
        return _preflight(bound)
    if caller.executes:
        return _exec(bound, confirmed, confirmed.instructions)
    return _screen(bound, confirmed, confirmed.instructions)


def _bound(request: AgentRequest, caller: CallerArguments, grant: Grant, facts: Facts) -> _Bound:
    version.SUPPORT.require(request.version)
    warnings = (
        *version.unproven_warnings(request.version),
        *roles.warnings(facts),
        *_outer(request, facts),
        *native_memory.unread_notice(request, handshake.planned_home(request), facts),
    )
    roles.refuse_native_memory(facts, request.version)
    disabled = flags.DISABLE_MEMORY if caller.enables else ()
    overrides = flags.overrides(flags.memory_overrides(grant, request.unknown))
    ours = (*overrides, *disabled, *_hooks(request))
    return _Bound(
        request=request,
        caller=caller,
        grant=grant,
        ours=ours,
        disabled=disabled,
        server=(*request.command, "app-server", *caller.overrides(), *ours),
        warnings=warnings,
    )


def _check_channelless(request: AgentRequest, caller: CallerArguments) -> None:
    """Refuse what cannot be bound on a screen or by `codex exec`."""
    if handshake.THREAD_CONFIG in request.options:
        raise BadArguments("thread-config is for the app-server's channel; pass -c instead")
    caller.check_screen()
    if request.mode is Mode.PASSTHROUGH and not caller.executes:
        raise BadArguments("codex needs a terminal for its screen; use `codex exec` in a pipe")
    if not caller.executes:
        version.refuse_screen(request.version)


def _preflight(bound: _Bound) -> Preflight:
    """Ask an app-server of the launch's flags first.

    A text for sub-agents that the session froze is among them, so that a Codex that does not know
    its key ends here, and not on the screen.
    """
    known = flags.SUBAGENT_TEXT not in bound.request.unknown
    frozen = subagents.text_arguments(bound.grant.subagent_instructions if known else None)
    return Preflight(argv=(*bound.server, *frozen), environment=(), framing=Framing.JSON_RPC)


def _exec(bound: _Bound, confirmed: Confirmed, instructions: str) -> LaunchPlan:
    """Plan `codex exec`, which takes everything as flags."""
    text = flags.text_override(flags.INSTRUCTIONS, instructions)
    own = subagents.text_arguments(confirmed.subagent_instructions)
    words = bound.caller.resuming(bound.request.resume)
    return LaunchPlan(
        argv=(*bound.request.command, *words.ending_with((*bound.ours, *text, *own))),
        instructions=instructions,
        subagent_instructions=confirmed.subagent_instructions,
        warnings=bound.warnings,
    )


def _screen(bound: _Bound, confirmed: Confirmed, instructions: str) -> LaunchPlan:
    """Plan a screen, whose threads an app-server beside it holds."""
    text = flags.text_override(flags.INSTRUCTIONS, instructions)
    own = subagents.text_arguments(confirmed.subagent_instructions)
    words = bound.caller.resuming(bound.request.resume)
    socket = f"{bound.grant.work}/{SOCKET}"
    screen = (
        *flags.overrides(flags.MEMORY_OFF),
        *own,
        *bound.disabled,
        *("--remote", f"unix://{socket}"),
    )
    return LaunchPlan(
        argv=(*bound.request.command, *words.ending_with(screen)),
        server=(*bound.server, *text, *own, "--listen", f"unix://{socket}"),
        socket=socket,
        framing=Framing.WEBSOCKET,
        instructions=instructions,
        subagent_instructions=confirmed.subagent_instructions,
        warnings=bound.warnings,
    )


def _outer(request: AgentRequest, facts: Facts) -> tuple[str, ...]:
    """Name another person's instructions above the folder, where they are of one project."""
    if outer_home.is_own_project(request, facts):
        return ()
    return outer_home.warnings(outer_home.present_files(request, facts, OUTER))


def _hooks(request: AgentRequest) -> tuple[str, ...]:
    """Return what switches hooks off, where the launch asks for it."""
    asked = request.options.get(WITHOUT_HOOKS, "false").lower() in _TRUE
    return flags.overrides(flags.NO_HOOKS) if asked else ()
