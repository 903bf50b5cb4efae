"""The environment that an agent is started with. Pure functions; docs/supervisor.md has the tables.

Two policies. A launch in the caller's own home starts from the caller's environment less what
belongs to another agent session. A launch with a relocated home (another user, or a private home)
starts from an allow-list, since the caller's variables hold credentials and private paths.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from amux.launcher.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amux.launcher.memory.grant import MemoryVariables
    from amux.materializer.values import Identity

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of a launch as another user, after the folders that the launch adds."""

SESSION_NAMES: Final = (
    "AI_AGENT",
    "AMUX_*",
    "BASH_FUNC_amux*",
    "CLAUDECODE",
    "CLAUDE_AGENT_SDK_*",
    "CLAUDE_CODE_*_FILE_DESCRIPTOR",
    "CLAUDE_CODE_*_SESSION_ID",
    "CLAUDE_CODE_*_SESSION_IDS",
    "CLAUDE_CODE_AGENT",
    "CLAUDE_CODE_BRIDGE_*",
    "CLAUDE_CODE_CHILD_*",
    "CLAUDE_CODE_CONTAINER_ID",
    "CLAUDE_CODE_ENTRYPOINT*",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_MESSAGING_*",
    "CLAUDE_CODE_PARENT_*",
    "CLAUDE_CODE_RELAUNCH_*",
    "CLAUDE_CODE_REMOTE*",
    "CLAUDE_CODE_RESULT_NONCE",
    "CLAUDE_CODE_RESUME_*",
    "CLAUDE_CODE_SANDBOXED",
    "CLAUDE_CODE_SDK_*",
    "CLAUDE_CODE_SESSION_*",
    "CLAUDE_CODE_SHELL_HANDOVER_*",
    "CLAUDE_CODE_SPAWN*",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_STARTER_*",
    "CLAUDE_CODE_SUPERVISED",
    "CLAUDE_CODE_TASK_LIST_ID",
    "CLAUDE_CODE_TEAM*",
    "CLAUDE_CODE_TMUX_*",
    "CLAUDE_CODE_TOOL_USE_ID",
    "CLAUDE_CODE_TRIGGER_ID",
    "CLAUDE_CODE_WORKER_*",
    "CLAUDE_EFFORT",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PID",
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PROJECT_DIR",
    "CODEX_CI",
    "CODEX_ESCALATE_SOCKET",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
    "CODEX_MANAGED_*",
    "CODEX_SANDBOX*",
    "CODEX_SESSION_ID",
    "CODEX_SNAPSHOT_*",
    "CODEX_STARTING_DIFF",
    "CODEX_THREAD_ID",
    "CURSOR_AGENT",
    "CURSOR_TRACE_ID",
    "GEMINI_CLI",
    "HERMES_INTERACTIVE",
    "HERMES_SESSION_*",
    "OPENCLAW_SESSION*",
    "OPENCLAW_SHELL",
    "OPENCODE",
    "OPENCODE_PID",
    "OPENCODE_RUN_ID",
    "OPENCODE_SESSION*",
    "PI_CODING_AGENT",
    "PI_MODEL",
    "PI_PROVIDER",
    "PI_REASONING_LEVEL",
    "PI_SESSION_FILE",
    "PI_SESSION_ID",
    "QWEN_CODE",
)
"""Variables that one agent session sets for what it starts; never passed on to another."""

SESSION_VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "CLAUDECODE": {"GIT_EDITOR": "true", "COREPACK_ENABLE_AUTO_PIN": "0"},
    "CODEX_CI": {
        "COLORTERM": "",
        "GH_PAGER": "cat",
        "GIT_PAGER": "cat",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "TERM": "dumb",
    },
}
"""Ordinary variables that the session named by the first key has set to just this value."""

EMPTY_IS_UNSET: Final = frozenset({"CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"})
"""Folders of agents that go wrong when they are set to nothing."""

ALLOWED_NAMES: Final = (
    "ALL_PROXY",
    "COLORTERM",
    "CURL_CA_BUNDLE",
    "FORCE_COLOR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "NODE_EXTRA_CA_CERTS",
    "NO_COLOR",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TZ",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""What a launch with a relocated home takes over from the caller without being asked."""

RESERVED_NAMES: Final = frozenset(
    {
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "HOME",
        "LOGNAME",
        "PATH",
        "PI_CODING_AGENT_DIR",
        "PWD",
        "SHELL",
        "USER",
    }
)
"""What a relocated home decides, so `--env` may not."""


SECRET_NAMES: Final = (
    "*CREDENTIAL*",
    "*PASSPHRASE*",
    "*PASSWD*",
    "*PASSWORD*",
    "*SECRET*",
    "*TOKEN*",
    "*_AUTH",
    "*_AUTH_*",
    "*_KEY",
    "*_KEYS",
)
"""What looks like a secret; a question that needs none is asked without."""


class _Names:
    """Names with wildcards, asked often and made at each start: no pattern is compiled for most."""

    def __init__(self, names: Iterable[str]) -> None:
        patterns = frozenset(names)
        self._exact = frozenset(name for name in patterns if "*" not in name)
        begun = {name for name in patterns if name.find("*") == len(name) - 1}
        self._begun = tuple(name[:-1] for name in begun)
        self._others = tuple(patterns - self._exact - begun)

    def match(self, name: str) -> bool:
        """Say whether one of the patterns covers the name."""
        if name in self._exact or name.startswith(self._begun):
            return True
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._others)


_SESSION: Final = _Names(SESSION_NAMES)
_ALLOWED: Final = _Names(ALLOWED_NAMES)
_SECRET: Final = _Names(SECRET_NAMES)
_PROXY: Final = _Names(("*_PROXY", "*_proxy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocatedHome:
    """The home that the agent gets instead of the caller's. `path` None is the system's PATH."""

    home: str
    user: str
    shell: str
    path: str | None = None

    @classmethod
    def of(cls, identity: Identity) -> Self:
        """Return the home of another user."""
        return cls(home=identity.home, user=identity.user, shell=identity.shell)


def base_environment(
    caller: Mapping[str, str],
    *,
    cwd: str,
    home: RelocatedHome | None = None,
    pass_names: tuple[str, ...] = (),
    folders: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the agent's environment before its provider and memory add to it.

    `folders` (the agent's and its interpreter's) come first in PATH where they are not in it.
    `pass_names` are let through the allow-list. Raises BadRequest for a name that may not be.
    """
    checked = _passable(pass_names, home)
    if home is None:
        environment = _scrubbed(caller)
        path = environment.get("PATH", "")
    else:
        environment = _allowed(caller, checked)
        environment |= _home_variables(home)
        path = SYSTEM_PATH if home.path is None else home.path
    environment["PATH"] = _join_path(_missing(folders, path), path)
    environment["PWD"] = cwd
    environment.pop("OLDPWD", None)
    return environment


def dropped_proxies(caller: Mapping[str, str], pass_names: tuple[str, ...]) -> tuple[str, ...]:
    """Name the caller's proxies that a relocated home does not get for the credential in them."""
    return tuple(
        name
        for name, value in sorted(caller.items())
        if _ALLOWED.match(name) and _holds_credential(name, value) and name not in pass_names
    )


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment less what looks like a secret."""
    return {
        name: value
        for name, value in environment.items()
        if not _SECRET.match(name.upper()) and not _holds_credential(name, value)
    }


def run_environment(
    base: Mapping[str, str],
    *,
    additions: Iterable[tuple[str, str]] = (),
    without: Iterable[str] = (),
    memory: MemoryVariables | None = None,
) -> dict[str, str]:
    """Return the complete environment: `base` with the provider's changes and memory's variables.

    Raises BadRequest for an addition that no environment can hold or that is amux's own.
    """
    environment = {name: value for name, value in base.items() if name not in set(without)}
    for name, value in additions:
        if not _valid(name, value) or name.startswith("AMUX_"):
            raise BadRequest(f"the provider may not set {name!r} in the agent's environment")
        environment[name] = value
    if memory is not None:
        environment["AMUX_MEMORY_BINDING"] = memory.binding
        environment["AMUX_CLI"] = memory.cli
        environment["AMUX_CONNECTION"] = memory.connection
        environment["PATH"] = _join_path((memory.commands,), environment.get("PATH", ""))
    return environment


def _scrubbed(caller: Mapping[str, str]) -> dict[str, str]:
    set_by_session = {
        name: value
        for session, values in SESSION_VALUES.items()
        if session in caller
        for name, value in values.items()
    }
    return {
        name: value
        for name, value in caller.items()
        if _valid(name, value)
        and not _SESSION.match(name)
        and set_by_session.get(name) != value
        and not (name in EMPTY_IS_UNSET and not value)
    }


def _allowed(caller: Mapping[str, str], passed: frozenset[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in _scrubbed(caller).items()
        if name in passed or (_ALLOWED.match(name) and not _holds_credential(name, value))
    }


def _holds_credential(name: str, value: str) -> bool:
    """Say whether a proxy's address carries a user's name or password."""
    return bool(_PROXY.match(name)) and "@" in value


def _home_variables(home: RelocatedHome) -> dict[str, str]:
    return {
        "HOME": home.home,
        "USER": home.user,
        "LOGNAME": home.user,
        "SHELL": home.shell,
        "CODEX_HOME": f"{home.home}/.codex",
        "PI_CODING_AGENT_DIR": f"{home.home}/.pi/agent",
    }


def _passable(names: tuple[str, ...], home: RelocatedHome | None) -> frozenset[str]:
    for name in names:
        if not _valid(name, ""):
            raise BadRequest(f"--env takes the name of a variable, and {name!r} is none")
        if _SESSION.match(name):
            raise BadRequest(f"--env {name}: it belongs to another agent session or to amux")
        if home is not None and name in RESERVED_NAMES:
            raise BadRequest(f"--env {name}: a launch with its own home sets it itself")
    return frozenset(names)


def _valid(name: str, value: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name and "\0" not in value


def _missing(folders: tuple[str, ...], path: str) -> tuple[str, ...]:
    present = set(path.split(":"))
    return tuple(folder for folder in folders if folder not in present)


def _join_path(first: tuple[str, ...], path: str) -> str:
    """Join folders once each; one that is not absolute would mean the agent's folder of work.

    So would a path without any: it is the system's then.
    """
    absolute = [folder for folder in path.split(":") if folder.startswith("/")]
    return ":".join(dict.fromkeys([*first, *(absolute or SYSTEM_PATH.split(":"))]))
