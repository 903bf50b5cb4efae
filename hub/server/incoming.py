"""The bytes that one connection sends, cut into requests before anything is parsed.

A request's head goes on only when it is whole, a body only when somebody with a right to send
one waits for it, and then in one piece. So what a byte costs does not depend on how the bytes
were dealt out: one at a time, in chunks of one, or all at once.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

HEAD_BYTES: Final = 16 * 1024
HEAD_LINES: Final = 100
# So many chunks are free, and each further one has to bring so many bytes on average.
FREE_CHUNKS: Final = 64
CHUNK_BYTES: Final = 128
_CHUNK_LINE_BYTES: Final = 256
_TRAILER_BYTES: Final = 4096
_END: Final = b"\r\n\r\n"
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t -~\x80-\xff]*)?")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class _Part(Enum):
    """Where in a body of chunks the next byte stands."""

    SIZE = auto()
    CONTENT = auto()
    END = auto()
    TRAILER = auto()
    OVER = auto()


class Malformed(Exception):
    """What was sent is not one plain HTTP/1.1 request; the text may be told to the sender."""


class TooLarge(Exception):
    """The body is over the bound; `size` is what was announced or has come."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Incoming:
    """Collect bytes, and give out heads and bodies."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self.length: int | None = 0
        """Bytes of the body of the request whose head was given out; None: in chunks."""
        self.framed = b""
        """The body that was given out last, as a parser of HTTP takes it in one piece."""
        self._body = bytearray()
        self._chunks = 0
        self._left = 0
        self._state = _Part.SIZE

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._data += data

    def drop(self, most: int) -> int:
        """Throw away up to `most` bytes that have come; return how many."""
        size = min(most, len(self._data))
        del self._data[:size]
        return size

    def head(self) -> bytes | None:
        """Return the next request's head once it is whole. Raises Malformed."""
        data = self._data
        if data and data[0] <= ord(" "):
            raise Malformed("the request begins with a blank")
        end = data.find(_END, max(0, self._searched - len(_END)))
        if end < 0:
            if len(data) > HEAD_BYTES or data.find(b"\n\n", max(0, self._searched - 1)) >= 0:
                raise Malformed(f"the head has more than {HEAD_BYTES} bytes, or lines without CR")
            self._searched = len(data)
            return None
        head = bytes(data[: end + len(_END)])
        del data[: len(head)]
        self._searched = 0
        self._frame(head)
        return head

    def _frame(self, head: bytes) -> None:
        """Learn from the head how long the body is."""
        if len(head) > HEAD_BYTES or head.count(b"\n") > HEAD_LINES:
            raise Malformed(f"the head has more than {HEAD_BYTES} bytes or {HEAD_LINES} lines")
        if not head.count(b"\n") == head.count(b"\r") == head.count(b"\r\n"):
            raise Malformed("a line of the head does not end with CR LF")
        first, *lines = head[: -len(_END)].split(b"\r\n")
        named = [(name.lower(), value.strip(b" \t")) for name, _, value in map(_parts, lines)]
        lengths = {value for name, value in named if name == b"content-length"}
        codings = [value.lower() for name, value in named if name == b"transfer-encoding"]
        if codings and (lengths or codings != [b"chunked"] or not first.endswith(b" HTTP/1.1")):
            # RFC 9112, 6.1 and 6.3: whoever reads it otherwise sees another request.
            raise Malformed("Transfer-Encoding is taken alone, once, and as chunked")
        if len(lengths) > 1 or not all(map(_DIGITS.fullmatch, lengths)):
            raise Malformed("Content-Length is not one number")
        self.length = None if codings else int(next(iter(lengths), b"0"))
        self._body.clear()
        self._chunks = self._left = 0
        self._state = _Part.SIZE

    def body(self, most: int) -> bytes | None:
        """Return the body once it is whole. Raises TooLarge and Malformed."""
        if self.length is None:
            body = self._chunked(most)
            self.framed = b"" if body is None else _one_chunk(body)
            return body
        if self.length > most:
            raise TooLarge(self.length)
        if len(self._data) < self.length:
            return None
        self.framed = bytes(self._data[: self.length])
        del self._data[: self.length]
        return self.framed

    @property
    def held(self) -> int:
        """Return how many bytes of an unfinished body are kept."""
        return len(self._body) + len(self._data)

    def _chunked(self, most: int) -> bytes | None:
        """Take what has come of the chunks; each part is looked at once."""
        at = 0
        try:
            while (found := self._step(at, most)) is not None:
                at = found
                if self._state is _Part.OVER:
                    return bytes(self._body)
            return None
        finally:
            del self._data[:at]

    def _step(self, at: int, most: int) -> int | None:
        """Take one part of the chunks from `at` on; return where it ends, None to wait."""
        match self._state:
            case _Part.SIZE:
                return self._size(at, most)
            case _Part.CONTENT:
                piece = self._data[at : at + self._left]
                self._body += piece
                self._left -= len(piece)
                if not self._left:
                    self._state = _Part.END
                return at + len(piece) if piece else None
            case _Part.END:
                if len(self._data) < at + 2:
                    return None
                if self._data[at : at + 2] != b"\r\n":
                    raise Malformed("a chunk is longer than its size")
                self._state = _Part.SIZE
                return at + 2
            case _:
                return self._trailer(at)

    def _size(self, at: int, most: int) -> int | None:
        """Read the line before a chunk."""
        end = self._data.find(b"\r\n", at, at + _CHUNK_LINE_BYTES)
        if end < 0:
            if len(self._data) - at >= _CHUNK_LINE_BYTES:
                raise Malformed("the line before a chunk is too long")
            return None
        size = _SIZE.fullmatch(self._data, at, end)
        if size is None:
            raise Malformed("the line before a chunk is not its size")
        self._left = int(size[1], 16)
        self._chunks += 1
        if len(self._body) + self._left > most:
            raise TooLarge(len(self._body) + self._left)
        if self._chunks > FREE_CHUNKS + len(self._body) // CHUNK_BYTES:
            raise Malformed(f"the chunks have less than {CHUNK_BYTES} bytes each")
        self._state = _Part.CONTENT if self._left else _Part.TRAILER
        return end + 2

    def _trailer(self, at: int) -> int | None:
        """Go past the fields behind the last chunk, which nobody asked for."""
        end = self._data.find(b"\r\n", at)
        if end == at:
            self._state = _Part.OVER
            return at + 2
        end = self._data.find(_END, at)
        if end >= 0:
            self._state = _Part.OVER
            return end + len(_END)
        if len(self._data) - at > _TRAILER_BYTES:
            raise Malformed("what follows the last chunk is too long")
        return None


def _one_chunk(body: bytes) -> bytes:
    if not body:
        return b"0\r\n\r\n"
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def _parts(line: bytes) -> tuple[bytes, bytes, bytes]:
    return line.partition(b":")
