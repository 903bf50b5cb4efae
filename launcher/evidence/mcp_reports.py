"""What the memory tools' own MCP server tells of a run: evidence that does not come from the agent.

The server is amux's. It tells that it was started, asked for its list and called, at a socket of
this run alone, so what is known holds whatever the agent says of itself. Processes of the run's own
account could say the same: it shows what an agent does, and is no proof against one that lies.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.launcher.process.signal_safe import Moment
from amux.materializer.witness import listen, receive
from amux.providers.base import MEMORY_TOOLS, Sighting

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.materializer.values import Identity, RunPaths

MESSAGES: Final = 1000
"""A run is heard so often; sub-agents have servers of their own, and each tells three things."""
SCHEMA: Final = 1
CALLED: Final = "memory tools called"
LIST: Final = "tools/list of this run's MCP server"
CALL: Final = "tools/call of this run's MCP server"
NEVER_STARTED: Final = (
    "the agent did not start this run's memory server, so it has no memory tools; look for a rule, "
    "a panel or an allow-list that leaves the MCP server amux out"
)
NEVER_LISTED: Final = (
    "the agent started this run's memory server and did not ask for its tools, so it has none; "
    "look for a time limit of its MCP servers that is too short"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the server was asked so far. `tools` are those of its list, None where none was sent."""

    started: bool = False
    client: str = ""
    tools: tuple[str, ...] | None = None
    called: str = ""

    @property
    def listed(self) -> bool:
        """Say whether the agent has the list."""
        return self.tools is not None

    def sightings(self) -> tuple[Sighting, ...]:
        """Say it as what was seen in the conversation."""
        seen = [self._list()]
        if self.called:
            seen.append(Sighting(control=CALLED, observed=self.called, source=CALL))
        return tuple(seen)

    def _list(self) -> Sighting:
        if self.tools is not None:
            to = f" to {self.client}" if self.client else ""
            observed = f"{len(self.tools)} listed{to}"
            return Sighting(control=MEMORY_TOOLS, observed=observed, source=LIST)
        return Sighting(
            control=MEMORY_TOOLS,
            observed="not listed" if self.started else "not asked for",
            source=LIST,
            contradicts=NEVER_LISTED if self.started else NEVER_STARTED,
        )


class Witness:
    """Hears the server of one run on a thread of its own, until it is closed."""

    def __init__(self, heard: socket.socket, uid: int) -> None:
        self._socket = heard
        self._trusted = {uid, 0}
        self._changed = threading.Condition()
        self._asked = Asked()
        self._on_report: Callable[[Asked], None] = lambda _: None
        self._over = Moment()
        threading.Thread(target=self._hear, name="amux-witness", daemon=True).start()

    @property
    def asked(self) -> Asked:
        """Return what is known by now."""
        return self._asked

    def wait(self, deadline: float) -> Asked:
        """Wait at most `deadline` seconds for the agent to ask for the list."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked.listed, deadline)
            return self._asked

    def tell(self, on_report: Callable[[Asked], None]) -> Asked:
        """Call `on_report` with what is learnt from now on; return what is known already."""
        with self._changed:
            self._on_report = on_report
            return self._asked

    def close(self) -> Asked:
        """Take what was sent by now, stop listening and return what is known."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        self._over.wait()
        return self._asked

    def _hear(self) -> None:
        with contextlib.ExitStack() as over:
            over.callback(self._over.tell)
            over.enter_context(self._socket)
            over.enter_context(contextlib.suppress(OSError))
            for _ in range(MESSAGES):
                received = receive(self._socket)
                if received is None:
                    return
                uid, message = received
                if uid in self._trusted:
                    self._take(message)

    def _take(self, message: bytes) -> None:
        with self._changed:
            known = _after(self._asked, message)
            if known == self._asked:
                return
            self._asked = known
            self._changed.notify_all()
            on_report = self._on_report
        on_report(known)


def open_witness(paths: RunPaths, identity: Identity | None) -> Witness | None:
    """Listen in a run's folder; None where nothing can be heard there."""
    heard = listen(paths, identity)
    if heard is None:
        return None
    return Witness(heard, os.geteuid() if identity is None else identity.uid)


def _after(known: Asked, message: bytes) -> Asked:
    """Add one message to what is known; one of another shape adds nothing."""
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        return known
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        return known
    names = _names(fields.get("tools"))
    client = known.client or _client(fields.get("client"))
    match fields.get("event"):
        case "initialize":
            return replace(known, started=True, client=client)
        case "tools/list":
            return replace(known, started=True, client=client, tools=known.tools or names or None)
        case "tools/call":
            called = known.called or ", ".join(names[:1])
            return replace(known, started=True, client=client, called=called)
    return known


def _names(value: object) -> tuple[str, ...]:
    names = (_plain(one) for one in (value if isinstance(value, list) else ()))
    return tuple(name for name in names if name)


def _client(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    return " ".join(filter(None, (_plain(value.get("name")), _plain(value.get("version")))))


def _plain(value: object) -> str:
    """Return a name as one line without control characters: the agent's account wrote it."""
    return "".join(c for c in value if c.isprintable()) if isinstance(value, str) else ""
