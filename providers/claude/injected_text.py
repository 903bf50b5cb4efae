"""What else puts text into a conversation: hooks, plugins, and another person's instructions."""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Any, Final

from amux.providers import outer_home
from amux.providers.claude import arguments as argv
from amux.providers.claude import settings, settings_sources
from amux.providers.claude.conversation import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amux.providers.base import AgentRequest, Facts

INJECTING: Final = ("SessionStart", "UserPromptSubmit")
"""Events whose hooks may put text into the conversation: how memory kits work."""
PLUGIN_OPTIONS: Final = ("--plugin-dir", "--plugin-dir-no-mcp")
HOOKS: Final = posixpath.join("hooks", "hooks.json")
MANIFEST: Final = posixpath.join(".claude-plugin", "plugin.json")
SOURCES: Final = "--setting-sources"
_OUTER: Final = (*settings_sources.OUTER, f"{settings_sources.OUTER_RULES}/")


def files_to_read(request: AgentRequest, items: tuple[argv.Item, ...]) -> tuple[str, ...]:
    """Name the caller's plugins, the list of installed ones, and another person's instructions."""
    return (
        *(path for folder in _given(request, items) for path in _files(folder)),
        _installed(request),
        *outer_home.paths(request, _OUTER),
    )


def outer(request: AgentRequest, facts: Facts) -> tuple[str, ...]:
    """Name the instructions of another person that nothing keeps from this launch."""
    return outer_home.warnings(outer_home.present_files(request, facts, _OUTER))


def more_files_to_read(
    request: AgentRequest, facts: Facts, layers: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Name the files of the plugins that are switched on."""
    plugins = _enabled(request, facts, layers).values()
    return tuple(path for folder in plugins for path in _files(folder))


def warnings(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    facts: Facts,
    layers: tuple[Mapping[str, Any], ...],
) -> Iterator[str]:
    """Name what may put text into the conversation, each source in one sentence."""
    for name, events in _hooks(request, items, facts, layers):
        yield (
            f"hooks of {name} ({', '.join(events)}) may put text of their own into this "
            "conversation, such as another memory's; amux does not see it"
        )


def _hooks(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    facts: Facts,
    layers: tuple[Mapping[str, Any], ...],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    read = [
        layer
        for layer in settings_sources.layers(request, facts)
        if _applies(request, items, layer)
    ]
    if any(settings.stops_hooks(one) for one in (*layers, *(layer.values for layer in read))):
        return
    managed = [layer for layer in read if layer.path.startswith(settings.MANAGED)]
    managed_only = any(layer.values.get("allowManagedHooksOnly") is True for layer in managed)
    found = [(layer.path, layer.values) for layer in (managed if managed_only else read)]
    if not managed_only:
        found += [("the launch's own --settings", layer) for layer in layers]
        for name, folder in _plugins(request, items, facts, layers):
            contents = [_object(facts.files.get(path)) for path in _files(folder)]
            found += [(name, values) for values in contents]
    for name, values in found:
        hooks = values.get("hooks")
        if isinstance(hooks, (str, list)):  # a plugin that keeps them in a file of another name
            yield name, ("of events that it names itself",)
        elif isinstance(hooks, dict) and (events := tuple(e for e in INJECTING if hooks.get(e))):
            yield name, events


def _applies(
    request: AgentRequest, items: tuple[argv.Item, ...], layer: settings_sources.Layer
) -> bool:
    """Say whether Claude reads this file here: its own, this folder's, or managed ones."""
    chosen = argv.values(items, SOURCES)
    kinds = set(chosen[-1].split(",")) if chosen else {"user", "project", "local"}
    own = {
        posixpath.join(user_folder(request), "settings.json"): "user",
        posixpath.join(request.cwd, ".claude", "settings.json"): "project",
        posixpath.join(request.cwd, ".claude", "settings.local.json"): "local",
    }
    kind = own.get(layer.path)
    if kind is not None:
        return kind in kinds
    managed = layer.path.startswith(settings.MANAGED)
    return managed or posixpath.basename(layer.path) == "remote-settings.json"


def _plugins(
    request: AgentRequest,
    items: tuple[argv.Item, ...],
    facts: Facts,
    layers: tuple[Mapping[str, Any], ...],
) -> Iterator[tuple[str, str]]:
    for folder in _given(request, items):
        yield f"the plugin in {folder}", folder
    for name, folder in _enabled(request, facts, layers).items():
        yield f"the plugin {name}", folder


def _given(request: AgentRequest, items: tuple[argv.Item, ...]) -> list[str]:
    named = [value for option in PLUGIN_OPTIONS for value in argv.values(items, option)]
    return [posixpath.join(request.cwd, value) for value in named]


def _enabled(
    request: AgentRequest, facts: Facts, layers: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the folders of the installed plugins that some settings switch on, by name."""
    every = (*(layer.values for layer in settings_sources.layers(request, facts)), *layers)
    switched: set[str] = set()
    for layer in every:
        plugins = layer.get("enabledPlugins")
        switched |= (
            {str(k) for k, v in plugins.items() if v} if isinstance(plugins, dict) else set()
        )
    installed = _object(facts.files.get(_installed(request))).get("plugins")
    found: dict[str, str] = {}
    for name, entry in installed.items() if isinstance(installed, dict) else ():
        places = entry if isinstance(entry, list) else [entry]
        for place in places:
            folder = place.get("installPath") if isinstance(place, dict) else None
            if name in switched and isinstance(folder, str) and posixpath.isabs(folder):
                found[str(name)] = folder
    return found


def _installed(request: AgentRequest) -> str:
    return posixpath.join(user_folder(request), "plugins", "installed_plugins.json")


def _files(folder: str) -> tuple[str, str]:
    return posixpath.join(folder, HOOKS), posixpath.join(folder, MANIFEST)


def _object(content: bytes | None) -> dict[str, Any]:
    try:
        loaded = json.loads(content or b"")
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}
