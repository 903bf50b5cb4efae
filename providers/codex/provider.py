"""The Codex provider."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from providers.base import (
    Capabilities,
    Confirmed,
    Facts,
    Framing,
    LaunchPlan,
    Mode,
    NativeResume,
    Preflight,
    Provider,
    Tools,
)
from providers.codex import flags, handshake
from providers.errors import UnknownVersion, UnsupportedMode, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.base import AgentRequest, Channel, Grant

SHOWN: Final = ("0.153.4", "0.171.0")
"""Versions for which every guarantee was shown on the real agent."""

FIRST_WITH_MEMORY_MODE: Final = (0, 121, 0)
_VERSION: Final = re.compile(r"\b(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.]+)?\b")
_TRUE: Final = frozenset({"", "1", "true", "yes"})


class CodexProvider(Provider):
    """Codex, controlled through its app-server."""

    name: ClassVar[str] = "codex"
    executable: ClassVar[str] = "codex"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True, tools=Tools.MCP, modes=frozenset({Mode.STREAM})
    )
    options: ClassVar[Mapping[str, str]] = {
        "without-hooks": "switch off every hook of Codex for this launch"
    }

    def version(self, output: str) -> str:
        """Return the version in what `codex --version` printed."""
        found = _VERSION.search(output)
        if found is None:
            raise UnknownVersion(f"`codex --version` printed no version: {output.strip()[:200]!r}")
        return found.group()

    def native_resume(self, arguments: tuple[str, ...]) -> NativeResume | None:
        """Find `resume ID` or `fork ID` among the caller's arguments."""
        return flags.native_resume(arguments)

    def plan(
        self,
        request: AgentRequest,
        grant: Grant | None,
        facts: Facts,
        confirmed: Confirmed | None = None,
    ) -> LaunchPlan | Preflight:
        """Plan an app-server on stdio; memory and its tools are launch-local overrides."""
        del facts, confirmed
        if request.mode not in self.capabilities.modes:
            raise UnsupportedMode(f"amux cannot launch codex in {request.mode} mode")
        warnings = () if grant is None else check_version(request.version)
        values: dict[str, object] = {} if grant is None else flags.bound(grant)
        if request.options.get("without-hooks", "false").lower() in _TRUE:
            values |= flags.NO_HOOKS
        caller = flags.for_server(request.arguments)
        argv = (*request.command, "app-server", *caller.overrides, *flags.overrides(values))
        return LaunchPlan(argv=argv, framing=Framing.JSON_RPC, warnings=warnings)

    def control(
        self, channel: Channel, request: AgentRequest, grant: Grant | None, plan: LaunchPlan
    ) -> Confirmed:
        """Open the thread and confirm that native memory is off for it."""
        del plan
        return handshake.control(channel, request, grant)


def check_version(version: str) -> tuple[str, ...]:
    """Refuse a version without memory mode; warn for one whose guarantees were not shown."""
    found = _VERSION.search(version)
    if found is None:
        raise UnknownVersion(f"{version!r} is no version of Codex")
    if tuple(int(part) for part in found.group(1, 2, 3)) < FIRST_WITH_MEMORY_MODE:
        raise UnsupportedVersion(
            f"Codex {version} cannot switch native memory off for a thread; bound launches need "
            "0.121.0 or newer: install one, or launch without memory"
        )
    if version in SHOWN:
        return ()
    unproven = (
        f"Codex {version}: that native memory stays off in background work and sub-agents was "
        f"shown for {' and '.join(SHOWN)} only; run `amux probe codex` for this one"
    )
    return (unproven,)
