"""The server beside an agent's screen: started and confirmed before the screen, attended after.

A person opens threads on the screen as they like. The server tells of each on the control
connection, and the provider settles it there; where it cannot, the screen is ended.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import AgentFailed, ChannelError, LaunchError
from amux.launcher.process.spawn import Stdio, spawn
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.channel.websocket import WebSocketChannel
    from amux.launcher.process.spawn import AgentProcess, SpawnRequest
    from amux.providers.base import Confirmed, JsonObject, LaunchPlan

LISTEN_SECONDS: Final = 20.0
"""For the server to listen on its socket."""
TERM_GRACE: Final = 2.0
"""Seconds between TERM and KILL: what the server has to save, it saves at each turn."""
QUIET_SECONDS: Final = 2.0
"""Without a message, before the provider is asked to look by itself."""


class Server:
    """The server's process and the control connection to it."""

    def __init__(self, process: AgentProcess, channel: WebSocketChannel) -> None:
        self.process = process
        self.channel = channel

    def stop(self) -> None:
        """Close the connection and end the server."""
        self.channel.close()
        self.process.stop(close=0.0, term=TERM_GRACE)

    def attend(
        self,
        settle: Callable[[JsonObject | None, frozenset[str]], Confirmed | None],
        on_evidence: Callable[[Confirmed], None],
        on_contradiction: Callable[[str], None],
    ) -> None:
        """Settle each thread of the screen, on a thread of its own, until the server ends.

        `on_evidence` hears what was established; `on_contradiction`, once, why a thread could not
        be settled.
        """

        def listen() -> None:
            settled: frozenset[str] = frozenset()
            while not self.channel.ended:
                try:
                    established = settle(self._message(), settled)
                    if established is not None:
                        settled |= {established.native_id or ""}
                        on_evidence(established)
                except (LaunchError, ProviderError, OSError) as error:  # the last: of the record
                    if not self.channel.ended:
                        on_contradiction(str(error))
                    return

        threading.Thread(target=listen, name=f"amux-attend-{self.process.pid}", daemon=True).start()

    def _message(self) -> JsonObject | None:
        try:
            return self.channel.receive(deadline=QUIET_SECONDS)
        except ChannelError:
            if self.channel.ended:
                raise
            return None


def start_server(request: SpawnRequest, plan: LaunchPlan) -> Server:
    """Start `plan.server` with the agent's environment and identity, and connect to it.

    Raises AgentFailed or ChannelError; nothing is left of it then.
    """
    from amux.launcher.channel.websocket import connect  # noqa: PLC0415  # few launches have a server

    if plan.server is None or plan.socket is None:
        raise ChannelError("the plan has no server beside the agent")
    process = spawn(replace(request, argv=plan.server, stdio=Stdio.PIPES))
    try:
        channel = connect(process, plan.socket, deadline=LISTEN_SECONDS)
    except (ChannelError, AgentFailed):
        process.stop(close=0.0, term=TERM_GRACE)
        if process.stdout is not None:
            process.stdout.close()
        raise
    return Server(process, channel)
