"""A server of terminals that was started in a run, and ends with it: people are told meanwhile.

tmux, screen and the like put a server into the background, which people then attach to and work
in. Started first by an agent, it is a process of the run as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.launcher.process.table import children, name
from amux.procstat import look

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.process.agent import AgentProcess

SERVERS: Final = frozenset(
    {"tmux: server", "tmate: server", "screen", "zellij", "dtach", "abduco", "shpool"}
)
"""How servers of terminals name themselves; a client of tmux is `tmux: client`."""


class Servers:
    """Looks for such a server in the trees of a run's `processes`; `warn` hears of one, once.

    Whoever puts itself into the background loses its parent and falls to the run's shim. So two
    short files tell it, and a run without costs next to nothing.
    """

    def __init__(self, processes: tuple[AgentProcess, ...], warn: Callable[[str], None]) -> None:
        self._processes = processes
        self._warn = warn

    def look(self) -> bool:
        """Look once; say whether that is all: one was told of, or the kernel tells nothing."""
        try:
            found = [text for process in self._processes for text in _servers(process)]
        except OSError:  # the run is over, or the kernel lists no children
            return True
        if found:
            self._warn(
                f"{found[0]} was started in this run and ends with it, with every session in it, "
                "a person's too; a server that is to live on must be there before, started "
                "outside of the run"
            )
        return bool(found)


def _servers(process: AgentProcess) -> list[str]:
    """Return the servers below one guard, each with its pid; raise OSError if it is gone."""
    agent = look(process.pid)
    found = []
    for shim in children(process.shim_pid):
        for pid in children(shim):
            server = None if pid == process.pid else look(pid)
            if server is None or agent is None or server.session == agent.session:
                continue
            called = name(pid)
            if server.lives and called in SERVERS:
                found.append(f"{called.partition(':')[0]} (pid {pid})")
    return found
