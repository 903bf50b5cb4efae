"""Where Claude's settings come from besides the launch: files, and what no file tells."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from amux.providers.base import MAX_FACT_BYTES
from amux.providers.claude import settings
from amux.providers.claude.conversation import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amux.providers.base import AgentRequest, Facts

NAMES: Final = ("settings.json", "settings.local.json")
DROPPED_IN: Final = posixpath.join(settings.MANAGED, "managed-settings.d", "*.json")
HELPERS: Final = ("policyHelper", "policyHelpers")
"""Managed programs that print managed settings at each start."""
DECIDING: Final = (
    "disabledMcpServers",
    "enabledMcpServers",
    "hasTrustDialogAccepted",
    "mcpServers",
)
"""What `.claude.json` holds of a project that decides an answer; the rest changes at each start."""
OTHER_VENDORS: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)
KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
OWN_PLANS: Final = frozenset({"pro", "max"})
"""Subscriptions of one person, whom no organisation sends settings."""


OUTER: Final = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    "AGENTS.md",
    ".claude/CLAUDE.md",
    ".claude/CLAUDE.local.md",
)
OUTER_RULES: Final = ".claude/rules"
"""A person's own instructions, which Claude reads in each folder above the one it is started in."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One settings file that is there, and what it says."""

    path: str
    values: Mapping[str, Any]


def files_to_read(request: AgentRequest) -> tuple[str, ...]:
    """Name the files that Claude reads on its own."""
    user = user_folder(request)
    named = (
        posixpath.join(user, "settings.json"),
        posixpath.join(user, "remote-settings.json"),
        *(
            posixpath.join(place, ".claude", name)
            for place in parent_folders(request)
            for name in NAMES
        ),
        posixpath.join(settings.MANAGED, "managed-settings.json"),
        DROPPED_IN,
        posixpath.join(settings.MANAGED, "managed-mcp.json"),
        state_file(request),
        login_file(request),
    )
    return tuple(dict.fromkeys(named))


def parent_folders(request: AgentRequest) -> tuple[str, ...]:
    """Return the launch's folder and each one above it."""
    found = [posixpath.normpath(request.cwd)]
    while found[-1] != posixpath.dirname(found[-1]):
        found.append(posixpath.dirname(found[-1]))
    return tuple(found)


def outer_excludes(request: AgentRequest) -> settings.Settings:
    """Return settings that keep Claude from another person's instructions above the folder.

    Where the folder is that person's home itself, they are the folder's own.
    """
    if not request.outer_homes or posixpath.normpath(request.cwd) in request.outer_homes:
        return {}
    names = (*OUTER, posixpath.join(OUTER_RULES, "**"))
    # Claude turns a backslash in a pattern into a slash, so what is special can only be any sign.
    escaped = [re.sub(r"[\\*?{}()\[\]!+@]", "?", home) for home in request.outer_homes]
    return {"claudeMdExcludes": [posixpath.join(home, name) for home in escaped for name in names]}


def state_file(request: AgentRequest) -> str:
    """Return the file that holds Claude's own state, its projects among it."""
    relocated = request.environment.get("CLAUDE_CONFIG_DIR") is not None
    return posixpath.join(user_folder(request) if relocated else request.home, ".claude.json")


def login_file(request: AgentRequest) -> str:
    """Return the file that says with which subscription Claude is logged in."""
    return posixpath.join(user_folder(request), ".credentials.json")


def layers(request: AgentRequest, facts: Facts) -> tuple[Layer, ...]:
    """Return the settings files that are there; one that is broken counts for nothing."""
    apart = {state_file(request), login_file(request)}
    found: list[Layer] = []
    for path in files_to_read(request):
        content = facts.files.get(path)
        if content is None or path in apart:
            continue
        for name, text in _each(path, content):
            values = _object(text)
            if values:
                found.append(Layer(name, values))
    return tuple(found)


def fingerprint(request: AgentRequest, facts: Facts) -> dict[str, object]:
    """Return what stands for every file that an answer depends on."""
    state = state_file(request)
    found: dict[str, object] = {
        path: None if content is None else hashlib.sha256(content).hexdigest()
        for path in files_to_read(request)
        if path not in {state, login_file(request)}
        for content in (facts.files.get(path),)
    }
    found[state] = _deciding(_object(facts.files.get(state)))
    return found


def is_cacheable(
    request: AgentRequest, facts: Facts, given: Iterable[Mapping[str, Any]], options: Iterable[str]
) -> bool:
    """Say whether files and environment decide the answer, so that it may be remembered.

    A managed helper may print something else at each start, and an organisation's server may send
    its members other settings than the last time.
    """
    known = layers(request, facts)
    if "--managed-settings" in options or _too_long(request, facts):
        return False
    if any(name in layer.values for layer in known for name in HELPERS):
        return False
    every = (*(layer.values for layer in known), *given)
    return not _organised(request, facts, every)


def _organised(request: AgentRequest, facts: Facts, every: tuple[Mapping[str, Any], ...]) -> bool:
    """Say whether an organisation's server may send settings, as far as files can tell."""
    own = request.environment
    environments = [own, *(env for one in every if isinstance(env := one.get("env"), dict))]
    if any(own.get(name) for name in OTHER_VENDORS):
        return False
    bases = [base for env in environments if (base := env.get("ANTHROPIC_BASE_URL"))]
    if own.get("ANTHROPIC_BASE_URL") and not any(_vendors(str(base)) for base in bases):
        return False
    if any(env.get(name) for env in environments for name in KEYS):
        return True
    login = _object(facts.files.get(login_file(request))).get("claudeAiOauth")
    return not isinstance(login, dict) or login.get("subscriptionType") not in OWN_PLANS


def _vendors(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    return host == "anthropic.com" or host.endswith(".anthropic.com")


def _too_long(request: AgentRequest, facts: Facts) -> bool:
    contents = (facts.files.get(path) for path in files_to_read(request))
    return any(content is not None and len(content) >= MAX_FACT_BYTES for content in contents)


def _deciding(state: Mapping[str, Any]) -> dict[str, object]:
    projects = state.get("projects")
    every = projects.items() if isinstance(projects, dict) else ()
    return {
        **{name: state[name] for name in DECIDING if name in state},
        "projects": {
            str(path): kept
            for path, project in every
            if isinstance(project, dict)
            and (kept := {name: project[name] for name in DECIDING if project.get(name)})
        },
    }


def _each(path: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Split what stands for many files: name, NUL, content, NUL."""
    if not posixpath.basename(path).startswith("*"):
        yield path, content
        return
    parts = content.split(b"\0")
    for name, text in zip(parts[::2], parts[1::2], strict=False):
        yield posixpath.join(posixpath.dirname(path), name.decode(errors="replace")), text


def _object(content: bytes | None) -> dict[str, Any]:
    try:
        loaded = json.loads((content or b"").decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
