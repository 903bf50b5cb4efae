"""The one `--settings` that a launch passes: the caller's, merged, with auto memory off on top.

Of two `--settings` the agent keeps one (which, depends on its version), so several are merged in
the order given: objects member by member, lists joined, anything else by the later one.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from amux.providers.errors import BadArguments, require_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amux.providers.base import Facts

SWITCH: Final = "CLAUDE_CODE_DISABLE_AUTO_MEMORY"
OFF: Final = "1"
OFF_SETTINGS: Final = {"env": {SWITCH: OFF}}
IN_PROCESS: Final = "in-process"
HERE: Final = {"disableAgentView": True, "teammateMode": IN_PROCESS}
"""Keeps the conversation in this process: no `/bg` to a daemon, no Claude in another pane."""
MANAGED: Final = "/etc/claude-code"
HOOKS_OFF: Final = "AMUX_HOOKS_OFF"
"""The variable by which a pre-flight says that the caller's own settings switch hooks off."""
Settings = dict[str, Any]


def is_inline(value: str) -> bool:
    """Say whether a `--settings` value is JSON itself, and not the name of a file."""
    trimmed = value.strip()
    return trimmed.startswith("{") and trimmed.endswith("}")


def files(values: Iterable[str], cwd: str) -> tuple[str, ...]:
    """Return the absolute paths among `--settings` values."""
    return tuple(posixpath.join(cwd, value) for value in values if not is_inline(value))


def read(values: Iterable[str], *, cwd: str, facts: Facts) -> tuple[Settings, ...]:
    """Read each `--settings` value; raise BadArguments where the agent could not."""
    return tuple(_read(value, cwd, facts) for value in values)


def merged(layers: Iterable[Mapping[str, Any]]) -> Settings:
    """Merge settings in order; the result shares nothing with the layers."""
    result: Settings = {}
    for layer in layers:
        result = _merge(result, layer)
    return result


def turns_memory_on(layers: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether a layer asks for auto memory, so that switching it off overrules the caller."""
    return any(
        bool(layer.get("autoMemoryEnabled"))
        or (isinstance(env := layer.get("env"), Mapping) and _forces_on(env.get(SWITCH)))
        for layer in layers
    )


def stops_hooks(layer: Mapping[str, Any]) -> bool:
    """Say whether a layer switches off the hooks that a launch passes."""
    only = layer.get("strictPluginOnlyCustomization")
    return (
        layer.get("disableAllHooks") is True
        or layer.get("allowManagedHooksOnly") is True
        or only is True
        or (isinstance(only, list) and "hooks" in only)
    )


def text(settings: Mapping[str, Any]) -> str:
    """Return settings as one line of JSON."""
    return json.dumps(settings, ensure_ascii=False, separators=(",", ":"))


def _forces_on(value: object) -> bool:
    return str(value).strip().lower() in {"0", "false", "no", "off"}


def _read(value: str, cwd: str, facts: Facts) -> Settings:
    if is_inline(value):
        return _object(require_utf8("--settings", value), "--settings")
    path = posixpath.join(cwd, value)
    content = facts.files.get(path)
    if content is None:
        message = f"--settings names {path}, which is not a file that can be read"
        raise BadArguments(message)
    settings = _object(content.decode("utf-8-sig", errors="replace"), path)
    return _rooted(settings, posixpath.dirname(path))


def _object(source: str, name: str) -> Settings:
    try:
        loaded = json.loads(source)
    except ValueError as error:
        message = f"{name} is not JSON ({error}), so it cannot be merged; correct it"
        raise BadArguments(message) from error
    if not isinstance(loaded, dict):
        message = f"{name} is not a JSON object, so it cannot be merged; correct it"
        raise BadArguments(message)
    return loaded


def _rooted(settings: Settings, folder: str) -> Settings:
    """Keep the meaning of `Tool(/path)` rules, which start at the settings file's own folder."""
    permissions = settings.get("permissions")
    if not isinstance(permissions, dict):
        return settings
    moved = {
        name: [_rule(rule, folder) for rule in rules] if isinstance(rules, list) else rules
        for name, rules in permissions.items()
    }
    return {**settings, "permissions": moved}


def _rule(rule: object, folder: str) -> object:
    if not isinstance(rule, str):
        return rule
    return re.sub(
        r"\A(Read|Edit|Write|NotebookEdit|Glob|Grep)\((!?)/(?!/)",
        lambda found: f"{found[1]}({found[2]}/{folder.rstrip('/')}/",
        rule,
    )


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    result = dict(below)
    for name, value in above.items():
        known = result.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            result[name] = _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            result[name] = [*known, *(one for one in value if one not in known)]
        else:
            result[name] = value
    return result
