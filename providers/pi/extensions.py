"""Extensions that Pi would load, as far as its folders and settings tell without asking it.

RPC mode lists those that register commands; on the screen and in print mode there is nobody to
ask, so what lies where Pi looks is named instead. Any of them may keep a memory of its own.
"""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING

from providers.base import Mode
from providers.pi import arguments as argv
from providers.pi.append import agent_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.base import AgentRequest, Facts


def questions(request: AgentRequest) -> tuple[str, ...]:
    """Name the folders that Pi finds extensions in."""
    return (
        posixpath.join(agent_folder(request), "extensions", ""),
        posixpath.join(request.cwd, ".pi", "extensions", ""),
    )


def warnings(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> tuple[str, ...]:
    """Say which extensions there are; in RPC mode Pi itself is asked."""
    if request.mode is Mode.STREAM:
        return ()
    found = list(argv.values(items, "--extension"))
    if not argv.given(items, "--no-extensions", "-ne"):
        found.extend(_discovered(request, facts))
    if not found:
        return ()
    return (f"extensions may keep a memory of their own, which amux cannot see: {found}",)


def _discovered(request: AgentRequest, facts: Facts) -> Iterator[str]:
    for folder in questions(request):
        for line in (facts.files.get(folder) or b"").decode("utf-8", "replace").splitlines():
            yield posixpath.join(folder, line.split("\t")[0])
    content = facts.files.get(posixpath.join(agent_folder(request), "settings.json"))
    try:
        settings = json.loads(content or b"{}")
    except ValueError:
        return
    for name in ("extensions", "packages"):
        listed = settings.get(name) if isinstance(settings, dict) else None
        for one in listed if isinstance(listed, list) else ():
            yield str(one.get("source") if isinstance(one, dict) else one)
