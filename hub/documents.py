"""Read one document from its open folder, whatever stands there under its name."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Final

from amux.hub.errors import InvalidPath, StorageFailed, Undecodable
from amux.hub.limits import refuse_over
from amux.hub.values import ABSENT

BOM: Final = b"\xef\xbb\xbf"
_CONTINUES: Final = 0b1000_0000
# O_NONBLOCK: a FIFO or a device that took the file's place must not hold the thread.
FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Document:
    """The whole bytes of a document and when they were last changed (Unix seconds)."""

    data: bytes
    modified: float

    @property
    def revision(self) -> str:
        """Return the SHA-256 of the bytes in lower-case hex."""
        return hashlib.sha256(self.data).hexdigest()


def revision_of(document: Document | None) -> str:
    """Return the document's revision, or `absent`."""
    return ABSENT if document is None else document.revision


def read_document(name: str, folder: int, *, most: int) -> Document | None:
    """Read the regular file `name` of at most `most` bytes, or return None if there is none.

    Raises InvalidPath for anything but a regular file, LimitExceeded, StorageFailed.
    """
    try:
        # Looked at before it is opened: opening a device can have effects.
        _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode, name)
        file = os.open(name, FILE_FLAGS, dir_fd=folder)
        try:
            status = os.fstat(file)
            _require_regular(status.st_mode, name)
            return Document(read_up_to(file, status.st_size, most), status.st_mtime)
        finally:
            os.close(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise InvalidPath(f"{name} is not a regular file") from error
        raise StorageFailed(f"the document cannot be read: {error.strerror}") from error


def _require_regular(mode: int, name: str) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise InvalidPath(f"{name} is a symlink, and symlinks are not followed")
    if stat.S_ISDIR(mode):
        raise InvalidPath(f"{name} is a folder, not a document")
    raise InvalidPath(f"{name} is not a regular file")


def read_up_to(file: int, size: int, most: int) -> bytes:
    """Read the whole file, of about `size` bytes; raises LimitExceeded above `most`."""
    data = os.read(file, size + 1) if size <= most else b""
    if size < len(data) <= most:
        data = _read_rest(file, data, most)
    refuse_over("readable_bytes", most, max(size, len(data)), "the file has {} bytes")
    return data


def _read_rest(file: int, data: bytes, most: int) -> bytes:
    """Go on reading a file that grew, but not much past `most`."""
    pieces, size = [data], len(data)
    while size <= most and (piece := os.read(file, most + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def is_text(data: bytes) -> bool:
    """Tell whether the bytes are UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_inside_character(text: bytes, at: int) -> bool:
    """Tell whether a byte position stands inside a code point of UTF-8 text."""
    return at < len(text) and text[at] & 0b1100_0000 == _CONTINUES


def decode(document: Document) -> str:
    """Return the document's text; raises Undecodable, which carries the revision."""
    try:
        return document.data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(
            f"the stored file is not UTF-8 text (byte {error.start})",
            revision=document.revision,
        ) from error
