"""The plan for the terminal agent, put into the SDK's own options.

The sidecar runs on amux's own interpreter, with the extra `amux-launcher[claude-sdk]`, and starts
the `claude` that the launch found. The merged text goes out as `systemPrompt.append`.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from amux.materializer.values import PlannedFile
from amux.providers.base import Capabilities, LaunchPlan, Mode, Tools
from amux.providers.claude import ClaudeProvider, tools
from amux.providers.claude import arguments as argv
from amux.providers.claude.settings import is_inline
from amux.providers.claude_sdk import sidecar
from amux.providers.claude_sdk.sidecar.options import Options
from amux.providers.errors import BadArguments, UnsupportedMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.providers.base import AgentRequest, Confirmed, Facts, Grant, Preflight

OPTIONS_FILE: Final = "sidecar.json"
SPOKEN: Final = (argv.PRINT, "--input-format", "--output-format", "--verbose", argv.SNAPSHOT)
"""What the SDK says by itself."""
LISTED: Final = (argv.ALLOWED, argv.DISALLOWED, "--add-dir")
NAMED: Final = (
    argv.APPEND,
    argv.SETTINGS,
    argv.MCP_CONFIG,
    argv.RESUME,
    argv.FORK,
    argv.SESSION_ID,
)


class ClaudeSdkProvider(ClaudeProvider):
    """Launch a sidecar on `claude-agent-sdk` with the guarantees of the terminal agent."""

    name: ClassVar[str] = "claude-sdk"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True, tools=Tools.MCP, modes=frozenset({Mode.STREAM})
    )

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Plan the sidecar; its options are the terminal agent's arguments, translated."""
        if request.mode is not Mode.STREAM:
            message = f"the sidecar speaks JSON lines with a supervisor, not in {request.mode} mode"
            raise UnsupportedMode(message)
        plan = super().plan(request, grant, facts, confirmed)
        if not isinstance(plan, LaunchPlan):
            return plan
        items = argv.parse(plan.argv[len(request.command) :])
        servers = _servers(items, plan, request, facts)
        options = _options(request, items, servers, bound=grant is not None)
        command = (request.interpreter, "-P", "-m", sidecar.__name__)
        if grant is None:
            return replace(plan, argv=(*command, options.as_json()))
        files = [one for one in plan.files if one.name != tools.FILE or isinstance(servers, str)]
        if not isinstance(servers, str):
            content = json.dumps({"mcpServers": servers}, ensure_ascii=False)
            files.append(PlannedFile(name=tools.FILE, content=content.encode()))
            options = replace(options, mcp_config=posixpath.join(grant.config, tools.FILE))
        files.append(PlannedFile(name=OPTIONS_FILE, content=options.as_json().encode()))
        path = posixpath.join(grant.config, OPTIONS_FILE)
        return replace(plan, argv=(*command, path), files=tuple(files))


def _options(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    servers: str | Mapping[str, object] | None,
    *,
    bound: bool,
) -> Options:
    """Put the terminal agent's arguments into the sidecar's options."""
    return Options(
        cli=request.command[-1],
        cwd=request.cwd,
        append=_last(items, argv.APPEND),
        snapshot=False if bound else None,
        settings=_last(items, argv.SETTINGS),
        mcp_config=servers if isinstance(servers, str) else None,
        allowed_tools=list(argv.values(items, argv.ALLOWED)),
        disallowed_tools=list(argv.values(items, argv.DISALLOWED)),
        add_dirs=list(argv.values(items, "--add-dir")),
        resume=_last(items, argv.RESUME),
        fork=argv.given(items, argv.FORK),
        session_id=_last(items, argv.SESSION_ID),
        extra=_extra(items),
    )


def _extra(items: tuple[argv.Item, ...]) -> dict[str, str | None]:
    """Return the options that the SDK has no word for; it takes each of them once."""
    extra: dict[str, str | None] = {}
    for item in argv.without(items, *SPOKEN, *LISTED, *NAMED):
        if item.name is None or item.name == argv.END:
            raise BadArguments("the sidecar takes prompts as JSON lines, not as arguments")
        name = item.name.lstrip("-")
        if not item.name.startswith("--") or name in extra or len(item.values) > 1:
            message = f"{item.name} cannot be passed on through the SDK, which takes it once"
            raise BadArguments(message)
        extra[name] = item.values[0] if item.values else None
    return extra


def _servers(
    items: tuple[argv.Item, ...], plan: LaunchPlan, request: AgentRequest, facts: Facts
) -> str | dict[str, object] | None:
    """Return the one MCP configuration, or the servers of several, the last of a name winning."""
    named = argv.values(items, argv.MCP_CONFIG)
    if not named:
        return None
    if len(named) == 1:
        return named[0]
    planned = {one.name: one.content for one in plan.files}
    servers: dict[str, object] = {}
    for value in named:
        path = posixpath.join(request.cwd, value)
        content = (
            value.encode()
            if is_inline(value)
            else facts.files.get(path) or planned.get(posixpath.basename(path))
        )
        try:
            loaded = json.loads(content or b"")
        except ValueError as error:
            message = f"{argv.MCP_CONFIG} {value[:200]} is not JSON that can be read: {error}"
            raise BadArguments(message) from error
        found = loaded.get("mcpServers") if isinstance(loaded, dict) else None
        servers |= found if isinstance(found, dict) else {}
    return servers


def _last(items: tuple[argv.Item, ...], name: str) -> str | None:
    given = argv.values(items, name)
    return given[-1] if given else None
