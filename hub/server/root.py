"""One process owns a memory root: an exclusive lock, held until the process ends.

The lock file says who holds it, so that a second Hub, `status` and `stop` can name the
holder. Its text is a hint; the lock itself is the truth.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Final

from amux.hub.errors import AlreadyRunning, HomeRefused
from amux.hub.holder import LOCK_FILE, Holder, read_holder
from amux.hub.home import PRIVATE_FILE, open_private_folder

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """The exclusive right to one AMUX_HOME and its memory folder."""

    def __init__(self, home: Path, descriptors: tuple[int, ...]) -> None:
        self._home = home
        self._descriptors = descriptors

    def announce(self, holder: Holder) -> None:
        """Write who holds the root into the lock file."""
        data = json.dumps(holder.as_json(), indent=1).encode() + b"\n"
        os.pwrite(self._descriptors[0], data, 0)
        os.ftruncate(self._descriptors[0], len(data))

    def release(self) -> None:
        """Give the root back."""
        # A disk that became read-only keeps the text; the pid in it says that it is old.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptors[0], 0)
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)


def claim(home: Path) -> Root:
    """Take the root's lock. Raises AlreadyRunning and HomeRefused."""
    memory = open_private_folder(home / "memory")
    first = _lock_file(home)
    try:
        second = os.open(memory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(second)
            raise AlreadyRunning(
                f"another Hub, of another AMUX_HOME, holds the memory root {memory}"
            ) from error
    except BaseException:
        os.close(first)
        raise
    return Root(home, (first, second))


def _nameless(descriptor: int) -> str:
    """Say who holds the lock but is not in the file: by the kernel's word, not by the file's."""
    found = os.fstat(descriptor)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and device in fields:
                pid = fields[fields.index(device) - 1]
                return (
                    f"process {pid} holds {LOCK_FILE}, perhaps of another version of amux; end it"
                    f" and start again: kill {pid}"
                )
    return f"a process that did not say its name holds {LOCK_FILE}"


def _lock_file(home: Path) -> int:
    try:
        descriptor = os.open(home / LOCK_FILE, _FLAGS, PRIVATE_FILE)
        if os.fstat(descriptor).st_nlink > 1:
            # A copy of the home by hard links: the file, and its lock, are another home's too.
            os.close(descriptor)
            (home / LOCK_FILE).unlink()
            descriptor = os.open(home / LOCK_FILE, _FLAGS, PRIVATE_FILE)
    except OSError as error:
        raise HomeRefused(f"cannot open {home / LOCK_FILE}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = read_holder(home, living=False)
        who = _nameless(descriptor) if holder is None else f"process {holder.pid} holds {LOCK_FILE}"
        os.close(descriptor)
        raise AlreadyRunning(f"the Hub of {home} runs already: {who}") from error
    except OSError as error:
        os.close(descriptor)
        raise HomeRefused(f"cannot lock {home / LOCK_FILE}: {error.strerror}") from error
    return descriptor
