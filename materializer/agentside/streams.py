"""Bytes to and from the three standard descriptors, whatever they are.

The descriptors are used directly: a closed pipe, a missing stream, a non-blocking one (as
some agents hand out) or a C locale then cannot raise inside the interpreter's own streams.
"""

from __future__ import annotations

import json
import os
import select

STDIN = 0
STDOUT = 1
STDERR = 2


def hold_descriptors() -> None:
    """Fill closed standard descriptors, so that no socket is opened in their place."""
    # Opened the wrong way round: reading or writing there fails, as it should.
    for fd, way in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, way)


def write_all(fd: int, data: bytes) -> None:
    """Write everything; raise `OSError` where nobody reads."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


def read_limited(fd: int, limit: int) -> bytes:
    """Read to the end, or to `limit` + 1 bytes where there are more than `limit`."""
    found = bytearray()
    while len(found) <= limit:
        try:
            piece = os.read(fd, min(65536, limit + 1 - len(found)))
        except BlockingIOError:
            select.select([fd], [], [])
            continue
        if not piece:
            break
        found += piece
    return bytes(found)


def to_json(value: object) -> bytes:
    """Serialise compactly as UTF-8, or as ASCII where the text has half characters."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def complain(data: bytes) -> None:
    """Write to standard error where somebody listens."""
    try:
        write_all(STDERR, data)
    except OSError:
        pass
