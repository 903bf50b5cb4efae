"""Requests to a worker that makes and reads files as the target, and its answers.

The service never goes into the target's home itself. It only opens what is to be copied, and
passes the descriptor: a link that the target made leads to nothing that the target could not
reach itself.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.materializer import worker
from amux.materializer.errors import NotProvided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amux.materializer.values import Identity

DEADLINE: Final = 20.0
WORKER: Final = "fileworker"


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to do with a path: `kind` is a word of `fileworker`, with its arguments."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the worker's answers: `word` is `made`, `kept`, `read` or `none`."""

    word: bytes
    content: bytes


def make_folder(path: str) -> Request:
    """Make a folder below the home, and those above it, 0700 each."""
    return Request("folder", path)


def copy(path: str, *, source: int, digest: str, replaceable: str) -> Request:
    """Copy the open file `source` to a path below the home.

    `digest` is the SHA-256 of its content. What is there is replaced only if its own digest is
    `replaceable`, or always if that is `always`.
    """
    return Request(f"copy-{source}-{digest}-{replaceable or 'none'}", path)


def read(path: str) -> Request:
    """Read a file, or each file that a last segment `*.ending` stands for."""
    return Request("read", path)


def list_folder(path: str) -> Request:
    """List a folder."""
    return Request("list", path)


def contains(path: str, text: bytes) -> Request:
    """Say whether a file contains this text."""
    return Request(f"contains-{text.hex()}", path)


def appended(pattern: str, since: int, digest: str) -> Request:
    """Read what was appended to the newest matching file."""
    return Request(f"appended-{since}-{digest}", pattern)


def newer(pattern: str, since: int) -> Request:
    """Name the matching files that have changed since."""
    return Request(f"newer-{since}", pattern)


def ask(
    identity: Identity | None,
    requests: Sequence[Request],
    *,
    home: str = "/",
    passed: tuple[int, ...] = (),
    limit: int = 0,
) -> list[Answer]:
    """Have a worker do all of it as the target, or as the caller where identity is None.

    `passed` are the descriptors that requests name; `limit` is in bytes for each file that is
    read. The answers are the target's word: they are split, never interpreted. Raises NotProvided.
    """
    pairs = (field for one in requests for field in (one.kind, one.path))
    answers = _split(_run((*_ids(identity), home, str(limit), *pairs), passed))
    last = answers.pop() if answers else Answer(b"", b"")
    if last.word == b"error":
        raise NotProvided(f"in {home}: {last.content.decode(errors='replace')}")
    if last.word != b"done":
        raise NotProvided("what makes and reads files as the target ended early")
    return answers


def _ids(identity: Identity | None) -> tuple[str, str, str]:
    if identity is None:
        return "", "", ""
    return str(identity.uid), str(identity.gid), ",".join(map(str, identity.groups))


def _run(fields: tuple[str, ...], passed: tuple[int, ...]) -> bytes:
    try:
        return worker.run(WORKER, fields, passed=passed, deadline=DEADLINE)
    except subprocess.TimeoutExpired as error:
        raise NotProvided(f"the target's files did not answer within {DEADLINE:.0f} s") from error


def _split(output: bytes) -> list[Answer]:
    answers = []
    while output:
        head, _, rest = output.partition(b"\n")
        word, _, size = head.partition(b" ")
        if not size.isdigit():
            return []
        answers.append(Answer(word, rest[: int(size)]))
        output = rest[int(size) :]
    return answers
