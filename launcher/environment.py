"""The environment that an agent is started with (DESIGN section 3, Environment)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from materializer.values import Identity

ALLOWED: Final = frozenset({"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"})
"""What an isolated or private-home launch takes over; `--env NAME` adds to it."""
OTHER_SESSIONS: Final = re.compile(
    r"AMUX_.*|CODEX_THREAD_ID|CODEX_SANDBOX.*|CLAUDECODE|CLAUDE_CODE_(SESSION.*|ENTRYPOINT|SSE_PORT)"
)


def launch_environment(
    environ: Mapping[str, str],
    *,
    identity: Identity | None,
    private_home: str | None,
    names: tuple[str, ...],
) -> dict[str, str]:
    """Return the agent's environment before what the launch itself adds."""
    if identity is None and private_home is None:
        return {
            name: value for name, value in environ.items() if not OTHER_SESSIONS.fullmatch(name)
        }
    kept = {name: environ[name] for name in (*ALLOWED, *names) if name in environ}
    home = private_home or (identity.home if identity else "")
    kept |= {
        "HOME": home,
        "CODEX_HOME": f"{home}/.codex",
        "PI_CODING_AGENT_DIR": f"{home}/.pi/agent",
    }
    if identity is not None:
        kept |= {"USER": identity.user, "LOGNAME": identity.user, "SHELL": identity.shell}
    kept.pop("CLAUDE_CONFIG_DIR", None)
    return kept
