"""What `config/read` says: the values that Codex will act on, and where they came from."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from amux.providers.base import Evidence
from amux.providers.codex.flags import SERVER
from amux.providers.errors import BadArguments, NotConfirmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amux.providers.base import JsonObject

CONTROLLED: Final = (
    "features.memories",
    "memories.use_memories",
    "memories.generate_memories",
)
OWN_FLAGS: Final = "sessionFlags"
"""The layer of `-c` flags. Layers come highest first."""

AGENT_SETTINGS: Final = frozenset(
    {
        *("enabled", "max_concurrent_threads_per_session", "max_depth", "job_max_runtime_seconds"),
        *("default_subagent_model", "default_subagent_reasoning_effort", "interrupt_message"),
    }
)


def value_at(config: object, dotted: str) -> Any:  # noqa: ANN401  # it is whatever Codex sent
    """Return the value at a dotted key, None where there is none."""
    found: Any = config
    for segment in dotted.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(segment)
    return found


def memory_off_evidence(answer: JsonObject, source: str) -> tuple[Evidence, ...]:
    """Return evidence that native memory is off; raise NotConfirmed naming the value that is not.

    Only a literal false counts: with the feature on, an unset value acts as true. Values are
    judged, never origins: a requirement pins a value and leaves the origin as it was.
    """
    config = answer.get("config")
    if not isinstance(config, dict):
        raise NotConfirmed("Codex sent no effective configuration", answer=json.dumps(answer))
    for dotted in CONTROLLED:
        value = value_at(config, dotted)
        if value is not False:
            raise NotConfirmed(
                f"Codex's native memory is not off: {dotted} is {json.dumps(value)}"
                f"{_whence(answer, dotted)}; remove it there, or launch without memory",
                answer=f"{dotted} = {json.dumps(value)}",
            )
    return tuple(Evidence(control=dotted, observed="false", source=source) for dotted in CONTROLLED)


def developer_instructions(answer: JsonObject) -> str:
    """Return the effective configured developer instructions, empty where there are none."""
    value = value_at(answer.get("config"), "developer_instructions")
    return value if isinstance(value, str) else ""


def append_protocol(configured: str, protocol: str) -> str:
    """Return the configured text, then the protocol, which is there exactly once."""
    if protocol in configured:
        return configured
    text = configured.rstrip()
    return f"{text}\n\n{protocol}" if text else protocol


def refuse_pinned_instructions(answer: JsonObject) -> None:
    """Refuse developer instructions that stand above `-c`: ours could not be added there."""
    for name in layers_above_flags(answer, "developer_instructions"):
        raise BadArguments(
            f"{name} sets developer_instructions above every flag, so the memory protocol cannot "
            "be added on the screen or in `codex exec`; launch over the app-server's channel, or "
            "remove it there"
        )


def layers_above_flags(answer: JsonObject, dotted: str) -> tuple[str, ...]:
    """Name the layers above `-c`, and above a thread's own `config`, that set a key."""
    layers = itertools.takewhile(lambda layer: layer[0] != OWN_FLAGS, _layers(answer))
    found = ((file or kind, value_at(config, dotted)) for kind, file, config in layers)
    return tuple(name for name, value in found if value is not None)


def server_warnings(answer: JsonObject, planned: Mapping[str, object]) -> tuple[str, ...]:
    """Return what other files do to the launch's memory server: merged keys, changed values."""
    found: list[str] = []
    for kind, file, config in _layers(answer):
        theirs = value_at(config, f"mcp_servers.{SERVER}")
        if kind != OWN_FLAGS and isinstance(theirs, dict) and theirs:
            found.append(
                f"{file or kind} has an MCP server named {SERVER} too; Codex merged its "
                f"{', '.join(sorted(theirs))} with the memory server of this launch, and what "
                "amux sets wins over files of the user and the project"
            )
    effective = value_at(answer.get("config"), f"mcp_servers.{SERVER}")
    if not isinstance(effective, dict):
        found.append("Codex does not know the memory server that amux passed to it")
        return tuple(found)
    changed = sorted(
        name
        for name, value in planned.items()
        if name in {"command", "args", "enabled"} and effective.get(name) != value
    )
    changed += sorted(
        name
        for name, value in planned.items()
        if name in {"enabled_tools", "disabled_tools"} and effective.get(name, value) != value
    )
    environment = planned.get("env")
    actual = effective.get("env") or {}
    if isinstance(environment, dict) and any(
        actual.get(name) != value for name, value in environment.items()
    ):
        changed.append("env")
    if changed:
        found.append(
            f"Codex uses another {', '.join(changed)} for the memory server than amux passed; "
            "a managed file stands above it"
        )
    return tuple(found)


def has_only_our_server(answer: JsonObject) -> bool:
    """Say whether the memory server is the only one that is configured and not switched off."""
    servers = value_at(answer.get("config"), "mcp_servers")
    others = (
        server
        for name, server in (servers if isinstance(servers, dict) else {}).items()
        if name != SERVER and not (isinstance(server, dict) and server.get("enabled") is False)
    )
    return not any(True for _ in others)


def namespace_warnings(answer: JsonObject) -> tuple[str, ...]:
    """Return a warning where a file's own list of direct tool namespaces is set aside."""
    key = "features.code_mode.direct_only_tool_namespaces"
    return tuple(
        f"{file or kind} sets {key}; for this launch it holds the memory tools only"
        for kind, file, config in _layers(answer)
        if kind != OWN_FLAGS and value_at(config, key) is not None
    )


def role_warnings(answer: JsonObject) -> tuple[str, ...]:
    """Return a warning for each agent role whose own file may replace the protocol."""
    roles = value_at(answer.get("config"), "agents")
    if not isinstance(roles, dict):
        return ()
    return tuple(
        f"the agent role {name} reads {role['config_file']}; developer_instructions there "
        "would replace the memory protocol in its sub-agents"
        for name, role in sorted(roles.items())
        if name not in AGENT_SETTINGS and isinstance(role, dict) and role.get("config_file")
    )


def awaiting_trust(answer: JsonObject, dotted: str) -> tuple[str, ...]:
    """Name the project folders that set a key which counts only once they are trusted.

    Codex trusts a folder by itself when a thread may write to it.
    """
    return tuple(
        str((layer.get("name") or {}).get("dotCodexFolder") or "the project")
        for layer in objects(answer.get("layers"))
        if layer.get("disabledReason") and value_at(layer, f"config.{dotted}") is not None
    )


def objects(value: object) -> list[JsonObject]:
    """Return the objects in what ought to be a list of objects."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _layers(answer: JsonObject) -> Iterator[tuple[str, str | None, JsonObject]]:
    """Yield kind, file and content of each layer that counts, highest first."""
    for layer in objects(answer.get("layers")):
        name, config = layer.get("name"), layer.get("config")
        if isinstance(name, dict) and isinstance(config, dict) and not layer.get("disabledReason"):
            file = name.get("file") or name.get("dotCodexFolder")
            yield str(name.get("type")), file, config


def _whence(answer: JsonObject, dotted: str) -> str:
    origin = (answer.get("origins") or {}).get(dotted)
    name = origin.get("name") if isinstance(origin, dict) else None
    if not isinstance(name, dict):
        return " (Codex names no origin)"
    if name.get("type") == OWN_FLAGS:
        return (
            " although amux passed false: a requirement pins it, a legacy profile switches it on, "
            "or a managed file sets its old name, features.memory_tool"
        )
    file = name.get("file")
    return f" (from {name.get('type')}{f' {file}' if file else ''})"
