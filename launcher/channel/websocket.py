"""JSON-RPC with an agent's server, over WebSocket on a Unix socket that it makes itself.

The server's process owns the life cycle, as on pipes; its stdout is drained and forgotten. The
compression offer is left out: Codex rejects it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.sync.client import ClientConnection, unix_connect

from amux.launcher.channel.jsonrpc import JsonRpcChannel, ServerRequestHandler, refuse
from amux.launcher.channel.lines import ENDING_GRACE, FRAME_LIMIT
from amux.launcher.errors import AgentFailed, ChannelError, DeadlinePassed

if TYPE_CHECKING:
    from amux.launcher.process.spawn import AgentProcess

POLL_SECONDS: Final = 0.01
"""Between two looks at whether the server has made its socket."""
SOCKET_PATH_BYTES: Final = 107
PEER: Final = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid."""


class WebSocketChannel(JsonRpcChannel):
    """JSON-RPC, one message a frame, on a connection to the server of `process`."""

    def __init__(
        self,
        process: AgentProcess,
        connection: ClientConnection,
        handler: ServerRequestHandler = refuse,
    ) -> None:
        self._connection = connection
        self._drainer = threading.Thread(
            target=self._drain, name=f"amux-drain-{process.pid}", daemon=True
        )
        super().__init__(process, handler)
        self._drainer.start()

    def close(self) -> None:
        """Close the connection; the server goes on."""
        self._connection.close()

    def _write(self, data: bytes, deadline: float) -> None:
        if not self._sending.acquire(timeout=max(0.0, deadline)):
            raise DeadlinePassed(f"another message was not taken within {deadline:g} s")
        try:
            self._connection.send(data.decode())
        except (OSError, WebSocketException) as error:
            self._broken("")
            raise self._end_error("") from error
        finally:
            self._sending.release()

    def _read(self) -> None:
        reason = ""
        try:
            for frame in self._connection:
                self._accept(frame if isinstance(frame, bytes) else frame.encode())
        except ChannelError as error:
            reason = str(error)
        except (OSError, WebSocketException):
            pass  # the server ended, or it let go of us
        if not reason and self._process.wait(ENDING_GRACE) is None:
            reason = "the agent's server closed its connection"
        self._broken(reason)


def connect(
    process: AgentProcess, path: str, *, deadline: float, handler: ServerRequestHandler = refuse
) -> WebSocketChannel:
    """Connect to the socket that `process` makes at `path`, waiting `deadline` seconds for it.

    Raises AgentFailed with the end of its stderr if the server ends first, else ChannelError.
    """
    if len(path.encode()) > SOCKET_PATH_BYTES:
        message = (
            f"the agent's socket {path} would be longer than {SOCKET_PATH_BYTES} bytes; "
            "set AMUX_RUNS to a shorter folder"
        )
        raise ChannelError(message)
    until = time.monotonic() + deadline
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            left = max(POLL_SECONDS, until - time.monotonic())
            try:
                # Closed by `close`; it must be entered, or websockets warns at the first use.
                connection = unix_connect(
                    uri="ws://localhost/",
                    sock=_socket_of(process, path, left),
                    compression=None,
                    max_size=FRAME_LIMIT,
                    open_timeout=left,
                    ping_interval=None,  # the server's end is seen on its process
                ).__enter__()
            except (FileNotFoundError, ConnectionRefusedError):
                raise
            except (InvalidHandshake, OSError, EOFError) as error:
                message = f"the agent's server on {path} speaks no WebSocket: {error}"
                raise ChannelError(message) from error
            return WebSocketChannel(process, connection, handler)
        if process.status is not None:
            raise AgentFailed(
                f"the agent's server ended ({process.status}) before it listened",
                stderr=process.stderr_tail(),
            )
        if time.monotonic() >= until:
            raise DeadlinePassed(f"the agent's server did not listen on {path} in {deadline:g} s")
        process.wait(POLL_SECONDS)


def _socket_of(process: AgentProcess, path: str, deadline: float) -> socket.socket:
    """Connect, and check that the account of `process` listens there.

    The folder is the target's: a link in it could lead the service to a socket that only the
    service may speak to.
    """
    identity = process.request.identity
    expected = os.geteuid() if identity is None else identity.uid
    with contextlib.ExitStack() as failed:
        opened = failed.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        opened.settimeout(deadline)
        try:
            opened.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, TimeoutError):
            raise
        except OSError as error:
            raise ChannelError(f"the agent's socket {path} is not one: {error}") from error
        credentials = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        _, uid, _ = PEER.unpack(credentials)
        if uid != expected:
            raise ChannelError(
                f"{path} leads to a server of uid {uid}, not of the agent (uid {expected})"
            )
        failed.pop_all()
    return opened
