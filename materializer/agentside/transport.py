"""One HTTP/1.1 exchange with the Hub, over its Unix socket or over TLS.

Written by hand since `http.client` alone costs three times the start of the interpreter.
A Hub that is slow is waited for, up to one deadline: on a busy machine many calls wait for
their turn, and one answer that is late says nothing about the Hub. Only what cannot answer
at all ends the wait before: a connection that breaks, or a process that was stopped.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time

from amux.materializer.agentside import VERSION
from amux.materializer.agentside.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from amux.materializer.agentside.connection import Connection

CONNECT = 10.0  # seconds to a connected, for TLS also verified, socket
PATIENCE = 1.0  # seconds without an answer before the Hub's process is looked at
LONGEST = 50.0  # seconds for one exchange; agents give a tool a minute
MAX_HEAD = 64 * 1024
MAX_ANSWER = 1024 * 1024
SOCKET_NAME = 107  # bytes that fit into a Unix socket's address
SANDBOX = "CODEX_SANDBOX_NETWORK_DISABLED"
UNCERTAIN = " A write may or may not have been done: read the document again before repeating it."


class Exchange:
    """One request on one connection; `abandon` ends it from another thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._socket: socket.socket | None = None
        self._abandoned = False

    def abandon(self) -> None:
        """End the exchange: `send` then raises `Failure`."""
        self._abandoned = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        began = time.monotonic()
        try:
            channel, host = _open(self._connection, CONNECT)
        except OSError as error:
            raise _unreachable(self._connection, error) from error
        self._socket = channel
        with channel:
            if self._abandoned:
                raise Failure("unavailable", "The call was cancelled.")
            channel.settimeout(PATIENCE)
            stream = _Stream(channel, began + LONGEST)
            stream.write(_request(self._connection, method, path, host, body))
            return _answer(stream)


class _Stream:
    """Bytes to and from the Hub, with the two waits of this module."""

    def __init__(self, channel: socket.socket, end: float) -> None:
        self._channel = channel
        self._end = end
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Send everything, or as much as the Hub takes: it may have answered already."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._channel.send(rest) :]
            except socket.timeout as error:
                self._require_alive(error)
            except (BrokenPipeError, ConnectionResetError):
                return

    def more(self) -> bool:
        """Wait for more bytes; return False at the end of the stream."""
        while time.monotonic() < self._end:
            try:
                piece = self._channel.recv(65536)
            except socket.timeout as error:
                self._require_alive(error)
                continue
            except OSError as error:
                raise Failure(
                    "unavailable", f"The Hub ended the connection ({error}).{UNCERTAIN}"
                ) from error
            self._rest += piece
            return piece != b""
        raise self._silent()

    def until(self, mark: bytes) -> bytes:
        """Return everything before `mark`, and step over it."""
        while mark not in self._rest:
            if len(self._rest) > MAX_HEAD or not self.more():
                raise _garbled()
        found, _, self._rest = self._rest.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > MAX_ANSWER:
            raise _garbled()
        while len(self._rest) < size:
            if not self.more():
                raise _garbled()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def everything(self) -> bytes:
        """Return all bytes up to the end of the stream."""
        while self.more():
            if len(self._rest) > MAX_ANSWER:
                raise _garbled()
        return self._rest

    def _require_alive(self, error: OSError) -> None:
        if time.monotonic() > self._end or is_stopped(self._channel):
            raise self._silent() from error

    @staticmethod
    def _silent() -> Failure:
        return Failure("unavailable", f"The Hub does not answer.{UNCERTAIN}")


def _request(connection: Connection, method: str, path: str, host: str, body: bytes) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        f"User-Agent: amux-agentside/{VERSION}",
        f"Authorization: Bearer {connection.token}",
        "Accept: application/json",
        "Connection: close",
    ]
    if connection.home is not None:
        lines.append(f"Amux-Home: {connection.home}")
    if connection.binding is not None:
        lines.append(f"Amux-Memory-Binding: {connection.binding}")
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body


def _answer(stream: _Stream) -> tuple[int, bytes]:
    status = 0
    while status < 200:  # noqa: PLR2004  # 1xx answers announce the real one
        head = stream.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        words = head[0].split(" ")
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004
            raise _garbled()
        status = int(words[1])
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, _chunks(stream)
    length = headers.get("content-length")
    if length is None:
        return status, stream.everything()
    if not length.isdigit():
        raise _garbled()
    return status, stream.exactly(int(length))


def _chunks(stream: _Stream) -> bytes:
    found = b""
    while len(found) <= MAX_ANSWER:
        try:
            size = int(stream.until(b"\r\n").partition(b";")[0], 16)
        except ValueError as error:
            raise _garbled() from error
        if size < 0:
            raise _garbled()
        if size == 0:
            return found
        found += stream.exactly(size)
        stream.exactly(2)
    raise _garbled()


def is_stopped(channel: socket.socket) -> bool:
    """Tell whether the process at the other end of a Unix socket is stopped, as by SIGSTOP."""
    if channel.family != socket.AF_UNIX:
        return False
    try:
        size = struct.calcsize("3i")
        pid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[
            0
        ]
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _open(connection: Connection, timeout: float) -> tuple[socket.socket, str]:
    """Connect, and name the host that the request is for."""
    kind, _, place = connection.url.partition(":")
    if kind == "unix" and place.startswith("/"):
        return _open_unix(place, timeout), "localhost"
    if kind == "https" and place.startswith("//"):
        from amux.materializer.agentside.tls import open_tls  # noqa: PLC0415  # ssl costs 8 ms

        return open_tls(place[2:].rstrip("/"), connection.ca_pem, timeout)
    raise Failure(
        "no_connection",
        "The connection file names a Hub that is neither at unix:/… nor at https://…; plain"
        " http is refused, since any local user could answer there.",
    )


class UnixAddress:
    """A context in which a Unix socket of any path has an address that the kernel takes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= SOCKET_NAME:
            return self._path
        folder = os.path.dirname(self._path)
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{os.path.basename(self._path)}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def _open_unix(path: str, timeout: float) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A non-blocking connect would fail at once where many others are waiting, too.
        wait = struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000))
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        with UnixAddress(path) as address:
            channel.connect(address)
    except BaseException:
        channel.close()
        raise
    return channel


def _unreachable(connection: Connection, error: OSError) -> Failure:
    # By class: an error of TLS has an errno of its own, and that may be 1, too.
    forbidden = isinstance(error, PermissionError) and error.errno == errno.EPERM
    if SANDBOX in os.environ or forbidden:
        return Failure(
            "unavailable",
            "This shell runs in a sandbox without network, so it cannot reach the memory Hub:"
            " use the MCP tools of the server amux (amux_memory_search, amux_memory_get, …),"
            " which run outside the sandbox, or ask to run this command outside it.",
            sandbox=True,
        )
    reason = error.strerror or str(error) or type(error).__name__
    return Failure(
        "unavailable",
        f"The memory Hub cannot be reached at {connection.url} ({reason}). Nothing was read or"
        " written.",
    )


def _garbled() -> Failure:
    return Failure("unavailable", f"The Hub's answer broke off or is not HTTP.{UNCERTAIN}")
