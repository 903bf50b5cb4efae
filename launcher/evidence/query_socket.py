"""Where somebody else asks a live run what its agent's context holds: a socket in the run's folder.

    <run>/inquiry.sock      0600, the service's

`amux sessions verify` of another process connects, and gets one JSON object: what the agent
answered (`seen`), or why it did not (`error`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from amux.hub.unixsocket import LONGEST_PATH, connect
from amux.launcher.errors import AgentFailed, ChannelError
from amux.providers.base import NATIVE_MEMORY, Sighting

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.channel.context_query import Inquiry

FILE: Final = "inquiry.sock"
MODE: Final = 0o600
ANSWER_SECONDS: Final = 60.0
"""For the agent to answer; a turn that is under way ends first."""
WAIT_SECONDS: Final = ANSWER_SECONDS + 10.0
CHUNK: Final = 65536


class Desk:
    """Serves one run, a caller at a time, until it is closed."""

    def __init__(self, listening: socket.socket, inquiry: Inquiry) -> None:
        self._listening = listening
        self._inquiry = inquiry
        threading.Thread(target=self._serve, name="amux-desk", daemon=True).start()

    def close(self) -> None:
        """Serve nobody any more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with self._listening, contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                with caller, contextlib.suppress(OSError):
                    caller.sendall(json.dumps(self._answer()).encode())

    def _answer(self) -> dict[str, object]:
        try:
            return {"seen": [asdict(one) for one in self._inquiry.ask(deadline=ANSWER_SECONDS)]}
        except (ChannelError, AgentFailed) as error:
            return {"error": str(error)}


def open_desk(run: Path, inquiry: Inquiry) -> Desk | None:
    """Serve at a run's folder; None where it can hold no socket."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        listening.close()
        return None
    try:
        os.fchmod(listening.fileno(), MODE)  # before it has a name: Linux gives the name this mode
        place = run / FILE
        short = len(os.fsencode(place)) <= LONGEST_PATH
        listening.bind(str(place) if short else f"/proc/self/fd/{folder}/{FILE}")
        listening.listen()
    except OSError:
        listening.close()
        return None
    finally:
        os.close(folder)
    return Desk(listening, inquiry)


def ask_at(run: Path) -> tuple[Sighting, ...]:
    """Return what a live run's agent answers; nothing where nobody can be asked there.

    Without an answer it says so, with the reason: that is no sign of absence.
    """
    try:
        with connect(run / FILE, seconds=WAIT_SECONDS) as desk:
            said = b"".join(iter(lambda: desk.recv(CHUNK), b""))
    except OSError:
        return ()
    try:
        answer = json.loads(said)
        if "seen" in answer:
            return tuple(Sighting(**one) for one in answer["seen"])
        reason = str(answer["error"])
    except (ValueError, KeyError, TypeError):
        reason = "its run ended meanwhile"
    source = f"the live run: {reason}"
    return (Sighting(control=NATIVE_MEMORY, observed="not told", source=source),)
