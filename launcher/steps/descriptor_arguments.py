"""Arguments that name a descriptor of the caller's, such as a shell's `<(command)`.

The agent does not get the caller's descriptors, and a pipe can be read once. So what stands behind
`/dev/fd/N` is read here, and the agent is given a file of its run with it.
"""

from __future__ import annotations

import os
import posixpath
import re
import select
import stat
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import BadRequest
from amux.materializer.values import PlannedFile

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.steps.attempt import Attempt

SIZE_LIMIT: Final = 16 * 1024 * 1024
SECONDS: Final = 60.0
"""How long what is behind a pipe may take to end."""
CHUNK: Final = 65_536
STANDARD: Final = 2
"""The last descriptor that is the agent's own."""
_NAMED: Final = re.compile(r"(?:\A|(?<=[=@\"']))/(?:dev|proc/self)/fd/(\d{1,9})(?=[\"']?\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Substituted:
    """The arguments with the run's files in them, and those files."""

    arguments: tuple[str, ...]
    files: tuple[PlannedFile, ...] = ()


def with_files(attempt: Attempt) -> Attempt:
    """Return the attempt with files of its run in place of the caller's descriptors."""
    found = substituted(attempt.target.arguments, attempt.paths.config)
    if not found.files:
        return attempt
    target = replace(attempt.target, arguments=found.arguments)
    return replace(attempt, target=target, given=found.files)


def substituted(arguments: tuple[str, ...], folder: Path) -> Substituted:
    """Read each pipe or file that is named by a descriptor; raise BadRequest where one cannot be.

    A name that is no open descriptor to read from stays as it is.
    """
    files: dict[int, PlannedFile] = {}

    def place(found: re.Match[str]) -> str:
        descriptor = int(found[1])
        if not _readable(descriptor):
            return found[0]
        if descriptor not in files:
            content = _content(descriptor, found[0])
            files[descriptor] = PlannedFile(name=f"argument-{descriptor}", content=content)
        return posixpath.join(str(folder), files[descriptor].name)

    words = tuple(_NAMED.sub(place, word) for word in arguments)
    return Substituted(arguments=words, files=tuple(files.values()))


def _readable(descriptor: int) -> bool:
    """Say whether it is a pipe or a file that the caller opened to read."""
    import fcntl  # noqa: PLC0415  # few launches name a descriptor

    if descriptor <= STANDARD:
        return False
    try:
        mode = os.fstat(descriptor).st_mode
        ways = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return False
    return ways != os.O_WRONLY and (stat.S_ISFIFO(mode) or stat.S_ISREG(mode))


def _content(descriptor: int, name: str) -> bytes:
    content, until = b"", time.monotonic() + SECONDS
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(content) <= SIZE_LIMIT:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise BadRequest(f"{name} did not end within {SECONDS:.0f} s; give a file instead")
        try:
            chunk = os.read(descriptor, CHUNK)
        except OSError as error:
            raise BadRequest(f"{name} cannot be read: {error.strerror}") from error
        if not chunk:
            return content
        content += chunk
    raise BadRequest(f"{name} holds more than {SIZE_LIMIT} bytes; give a file instead")
