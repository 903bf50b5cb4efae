"""Find providers: entry points of the group `amux.providers`, each imported when it is asked for.

A name that two distributions claim belongs to neither, except that a built-in provider keeps its
own. A plugin that fails to load is reported with what it raised and never breaks another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final

from amux.providers.base import Capabilities, Provider
from amux.providers.errors import UnknownProvider

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

GROUP: Final = "amux.providers"
OURS: Final = "amux-launcher"
BUILT_IN: Final = {
    "claude": ("amux.providers.claude", "ClaudeProvider"),
    "claude-sdk": ("amux.providers.claude_sdk", "ClaudeSdkProvider"),
    "codex": ("amux.providers.codex", "CodexProvider"),
    "generic": ("amux.providers.generic", "GenericProvider"),
    "pi": ("amux.providers.pi", "PiProvider"),
}
"""amux's own entry points: they keep their names, so a launch of one need not look for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One provider as found. `problem` says why it cannot be used, and is empty if it can."""

    name: str
    distribution: str
    target: str
    capabilities: Capabilities | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


class Registry:
    """The providers that are installed. Nothing is imported before `load` or `listing`."""

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        self._given = points

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in _installed() if self._given is None else self._given:
            same = found.setdefault(point.name, [])
            # One distribution may be seen twice where two folders of sys.path hold it.
            if all((point.value, _owner(point)) != (one.value, _owner(one)) for one in same):
                same.append(point)
        return found

    def names(self) -> tuple[str, ...]:
        """Return every registered name, sorted."""
        return tuple(sorted(self._points))

    def load(self, name: str) -> Provider:
        """Return the provider of that name; raise UnknownProvider saying why there is none."""
        if self._given is None and name in BUILT_IN:
            module, attribute = BUILT_IN[name]
            provider: type[Provider] = getattr(import_module(module), attribute)
            return provider()
        return _instance(self._choose(name))

    def listing(self) -> tuple[Listed, ...]:
        """Return every provider, the unusable ones with what is wrong with them."""
        return tuple(row for name in self.names() for row in self._rows(name))

    def _choose(self, name: str) -> EntryPoint:
        points = self._points.get(name, [])
        if not points:
            known = ", ".join(self.names()) or "none"
            raise UnknownProvider(f"there is no provider {name!r}; installed: {known}")
        if len(points) == 1:
            return points[0]
        ours = [point for point in points if _owner(point) == OURS]
        if len(ours) != 1:
            owners = ", ".join(sorted(_owner(point) for point in points))
            raise UnknownProvider(
                f"the provider {name!r} is claimed by {owners}; uninstall all but one of them"
            )
        return ours[0]

    def _rows(self, name: str) -> list[Listed]:
        rows: list[Listed] = []
        chosen: EntryPoint | None = None
        problem = ""
        try:
            chosen = self._choose(name)
        except UnknownProvider as error:
            problem = str(error)
        for point in self._points[name]:
            if chosen is not None and point is not chosen:
                problem = f"{name} is a built-in provider of amux, which keeps the name"
            elif chosen is not None:
                problem = ""
            rows.append(_row(point, problem))
        return rows


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # 10 ms that few launches need

    return entry_points(group=GROUP)


def _row(point: EntryPoint, problem: str) -> Listed:
    capabilities = None
    options: Mapping[str, str] = {}
    if not problem:
        try:
            found = _instance(point)
            capabilities, options = found.capabilities, found.options
        except UnknownProvider as error:
            problem = str(error)
    return Listed(
        name=point.name,
        distribution=_owner(point),
        target=point.value,
        capabilities=capabilities,
        options=options,
        problem=problem,
    )


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _instance(point: EntryPoint) -> Provider:
    """Import and make the provider. Whatever a plugin raises is its own failure, not ours."""
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # a plugin may raise anything
        raise _unusable(point, f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Provider)):
        raise _unusable(point, "is not a class derived from amux.providers.base.Provider")
    for attribute, kind in (("name", str), ("executable", str), ("capabilities", Capabilities)):
        if not isinstance(getattr(loaded, attribute, None), kind):
            raise _unusable(point, f"declares no {attribute} ({kind.__name__})")
    if loaded.name != point.name:
        raise _unusable(point, f"calls itself {loaded.name!r}")
    try:
        return loaded()
    except (Exception, SystemExit) as error:  # same
        raise _unusable(point, f"cannot be made: {type(error).__name__}: {error}") from error


def _unusable(point: EntryPoint, why: str) -> UnknownProvider:
    owner = _owner(point) or "no distribution"
    return UnknownProvider(f"the provider {point.name!r} ({point.value}, of {owner}) {why}")
