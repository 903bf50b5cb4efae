"""Extensions that Pi would load, as far as its arguments, folders and settings tell.

RPC mode lists those that register commands, and no others; any may keep a memory of its own, or
change the prompt. So what lies where Pi looks is named in every mode.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from amux.providers.base import Evidence
from amux.providers.pi import arguments as argv
from amux.providers.pi.appended_text import agent_folder, loads_project, settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amux.providers.base import AgentRequest, Facts, LaunchPlan

OWN: Final = ("builtin:", "<inline:")
"""What the place of an extension of Pi's own begins with."""
LEFT_OUT: Final = ("-", "!")
"""What an entry of the settings begins with that switches an extension off."""
CODE: Final = (".ts", ".js", ".mts", ".cts", ".mjs", ".cjs")


def files_to_read(request: AgentRequest) -> tuple[str, ...]:
    """Name the folders that Pi finds extensions in."""
    return (_users(request), _projects(request))


def warnings(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> tuple[str, ...]:
    """Say which extensions there are."""
    found = list(argv.values(items, "--extension"))
    if not argv.given(items, "--no-extensions", "-ne"):
        found.extend(_discovered(request, items, facts))
    return _warning(found)


def loaded_evidence(
    commands: object, plan: LaunchPlan
) -> tuple[tuple[Evidence, ...], tuple[str, ...]]:
    """List what registered commands in RPC mode; warn of those that the plan did not name."""
    places: dict[str, list[str]] = {}
    for one in commands if isinstance(commands, list) else ():
        if isinstance(one, dict) and one.get("source") == "extension":
            info = one.get("sourceInfo")
            place = str(info.get("path")) if isinstance(info, dict) else str(one.get("path"))
            places.setdefault(place, []).append(str(one.get("name")))
    observed = "; ".join(f"{place} ({', '.join(names)})" for place, names in places.items())
    evidence = Evidence(
        control="extensions that register commands",
        observed=observed or "none",
        source="get_commands",
    )
    told = [place for place in places if not any(place in text for text in plan.warnings)]
    return (evidence,), _warning(place for place in told if not place.startswith(OWN))


def _warning(places: Iterable[str]) -> tuple[str, ...]:
    found = list(dict.fromkeys(places))
    if not found:
        return ()
    danger = "keep a memory of their own or take the protocol out of the prompt"
    return (f"extensions may {danger}, which amux cannot see: {found}",)


def _discovered(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> Iterator[str]:
    folders = [_users(request)]
    if loads_project(request, items, facts):
        folders.append(_projects(request))
    for folder in folders:
        for line in (facts.files.get(folder) or b"").decode("utf-8", "replace").splitlines():
            name = line.split("\t")[0]
            if name.endswith(CODE) or "." not in name:  # which may be a folder
                yield posixpath.join(folder, name)
    for one in settings(request, items, facts):
        for key in ("extensions", "packages"):
            listed = one.get(key)
            for entry in listed if isinstance(listed, list) else ():
                place = str(entry.get("source") if isinstance(entry, dict) else entry)
                if not place.startswith((*LEFT_OUT, *OWN, "+builtin:")):
                    yield place


def _users(request: AgentRequest) -> str:
    return posixpath.join(agent_folder(request), "extensions", "")


def _projects(request: AgentRequest) -> str:
    return posixpath.join(request.cwd, ".pi", "extensions", "")
