"""How an agent is connected: pipes, a new PTY, or the caller's own stdio."""

from __future__ import annotations

import fcntl
import os
import select
import termios
from dataclasses import dataclass
from enum import StrEnum
from subprocess import DEVNULL
from typing import TYPE_CHECKING, BinaryIO, Final

from amux.launcher.process import specification

if TYPE_CHECKING:
    import contextlib

    from amux.launcher.process.spawn import SpawnRequest


LAST_STDIO: Final = 2


class Stdio(StrEnum):
    """PIPES: to the supervisor. INHERIT: the caller's own, untouched. PTY: a new terminal."""

    PIPES = specification.PIPES
    INHERIT = specification.INHERIT
    PTY = specification.PTY


@dataclass(slots=True, kw_only=True)
class Ends:
    """The two sides of the agent's stdio. None on the agent's side is the caller's own."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    our_stdin: BinaryIO | None = None
    our_stdout: BinaryIO | None = None
    our_stderr: BinaryIO | None = None
    terminal: int | None = None

    @classmethod
    def make(cls, request: SpawnRequest, opened: contextlib.ExitStack) -> Ends:
        """Open what the request needs; `opened` closes it again if the start fails."""
        if request.stdio is Stdio.INHERIT:
            stdin, stdout, stderr = (None if is_open(number) else DEVNULL for number in range(3))
            return cls(stdin=stdin, stdout=stdout, stderr=stderr)
        if request.stdio is Stdio.PTY:
            return cls._terminal(request, opened)
        pairs = [tuple(map(above_stdio, os.pipe())) for _ in range(3)]
        (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr) = pairs
        ends = cls(
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            our_stdin=opened.enter_context(os.fdopen(our_stdin, "wb", buffering=0)),
            our_stdout=opened.enter_context(os.fdopen(our_stdout, "rb", buffering=0)),
            our_stderr=opened.enter_context(os.fdopen(our_stderr, "rb", buffering=0)),
        )
        for descriptor in (stdin, stdout, stderr):
            opened.callback(os.close, descriptor)
            if request.identity is not None:
                # A pipe of another owner could not be opened again as /dev/stderr.
                os.fchown(descriptor, request.identity.uid, request.identity.gid)
        os.set_blocking(our_stdin, False)
        return ends

    @classmethod
    def _terminal(cls, request: SpawnRequest, opened: contextlib.ExitStack) -> Ends:
        ours, theirs = map(above_stdio, os.openpty())
        opened.callback(os.close, ours)
        opened.callback(os.close, theirs)
        termios.tcsetwinsize(theirs, (request.rows, request.columns))
        if request.identity is not None:
            os.fchown(theirs, request.identity.uid, request.identity.gid)
            os.fchmod(theirs, 0o600)
        return cls(stdin=theirs, stdout=theirs, stderr=theirs, terminal=ours)

    def close_theirs(self) -> None:
        """Close the agent's side, which the shim holds by now."""
        for descriptor in {self.stdin, self.stdout, self.stderr}:
            if descriptor is not None and descriptor != DEVNULL:
                os.close(descriptor)


def is_open(descriptor: int) -> bool:
    """Say whether this process has a file of that number."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def above_stdio(descriptor: int) -> int:
    """Return the file under a number that is not stdin's, stdout's or stderr's.

    A process that has closed one of them gets its number for the next file that it opens.
    """
    if descriptor > LAST_STDIO:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LAST_STDIO + 1)
    os.close(descriptor)
    return moved


def write_all(descriptor: int, data: bytes) -> bool:
    """Write everything, waiting where the other side is slow; False if there is none any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True
