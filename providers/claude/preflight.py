"""The pre-flight: the same binary, settings, environment and folder, asked before the start."""

from __future__ import annotations

import hashlib
import json
import posixpath
from typing import TYPE_CHECKING, Final

from amux.materializer.values import PlannedFile
from amux.providers.base import Framing, Preflight
from amux.providers.claude import arguments as argv
from amux.providers.claude import settings, settings_sources, tools
from amux.providers.claude.plan import STREAM, with_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amux.providers.base import AgentRequest, Grant
    from amux.providers.claude.plan import Caller

SETTLING: Final = (
    "--setting-sources",
    "--managed-settings",
    "--restricted",
    "--safe-mode",
    "--bare",
    "--agent",
    "--agents",
    "--plugin-dir",
    argv.DISALLOWED,
)
"""The caller's options that decide which settings count, and which tools are offered."""
OURS: Final = (
    (argv.APPEND, "-"),
    (argv.APPEND_FILE, None),
    (argv.SUBAGENT, "-"),
    (argv.SUBAGENT_FILE, None),
    (argv.SNAPSHOT, "off"),
    (argv.ALLOWED, tools.PREFIX),
)
"""Options of amux's own that the launch may have, with something to ask with; None for a file."""
QUIET: Final = {"disableAllHooks": True}
FILE: Final = "preflight.json"
_PASSING: Final = (
    "_ SHLVL PWD OLDPWD TERM COLORTERM COLUMNS LINES WINDOWID TMUX TMUX_PANE STY SSH_TTY "
    "SSH_CLIENT SSH_CONNECTION SSH_AUTH_SOCK XDG_SESSION_ID GPG_TTY"
)
PASSING: Final = frozenset(_PASSING.split())
"""Variables of one terminal or shell, which no answer depends on."""


def plan_preflight(caller: Caller, grant: Grant) -> Preflight:
    """Ask a Claude that runs no hook, no server but ours, and keeps no conversation."""
    request = caller.request
    asked = settings.merged((*caller.layers, settings.OFF_SETTINGS, QUIET, *_marks(caller)))
    settling = [word for item in caller.items if item.name in SETTLING for word in item.words]
    settling.extend(_ours(caller, grant))
    return Preflight(
        argv=(
            *request.command,
            *(option for _, option in STREAM),
            "--no-session-persistence",
            "--strict-mcp-config",
            f"{argv.MCP_CONFIG}={tools.preflight_config(grant)}",
            f"{argv.SETTINGS}={posixpath.join(grant.config, FILE)}",
            *settling,
        ),
        environment=((settings.SWITCH, settings.OFF),),
        framing=Framing.JSON_LINES,
        files=(PlannedFile(name=FILE, content=settings.text(asked).encode()),),
        remember=_remember(caller, grant, asked, settling),
    )


def _ours(caller: Caller, grant: Grant) -> Iterator[str]:
    """Give the launch's options without their texts: who does not know one ends here, before it."""
    planned = argv.parse(with_memory(caller, grant).argv[len(caller.request.command) :])
    for name, value in OURS:
        if argv.given(planned, name):
            yield f"{name}={posixpath.join(grant.config, FILE) if value is None else value}"


def _remember(
    caller: Caller, grant: Grant, asked: settings.Settings, settling: list[str]
) -> str | None:
    """Digest everything that the answer depends on; None where not all of that can be known."""
    request = caller.request
    options = (item.name or "" for item in caller.items)
    if not settings_sources.is_cacheable(request, caller.facts, caller.layers, options):
        return None
    return _digest(
        (
            request.command,
            request.version,
            request.cwd,
            request.home,
            [word.replace(grant.config, "") for word in settling],
            asked,
            # Another user's copy of the command lies in the run, whose name no answer depends on.
            tools.preflight_config(grant).replace(grant.config, ""),
            _lasting(request, grant),
            settings_sources.fingerprint(request, caller.facts),
        )
    )


def _marks(caller: Caller) -> tuple[settings.Settings, ...]:
    """Say in the settings themselves what `QUIET` covers: that the caller's switch hooks off."""
    if any(settings.stops_hooks(layer) for layer in caller.layers):
        return ({"env": {settings.HOOKS_OFF: "1"}},)
    return ()


def _lasting(request: AgentRequest, grant: Grant) -> list[tuple[str, str]]:
    """Return the environment less what differs from run to run and cannot matter."""
    kept = {
        name: value
        for name, value in request.environment.items()
        if name not in PASSING and not name.startswith("AMUX_")
    }
    if "PATH" in kept:
        folders = kept["PATH"].split(":")
        kept["PATH"] = ":".join(one for one in folders if not one.startswith(grant.config))
    return sorted(kept.items())


def _digest(parts: Iterable[object]) -> str:
    source = json.dumps(list(parts), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(source.encode()).hexdigest()
