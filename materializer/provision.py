"""Make and read files in the target's home, without ever going there as the service.

A child that already holds the target's identity does both. The service only opens what is to be
copied, and passes the descriptor: a link that the target made leads to nothing that the target
could not reach itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors
from amux.materializer.errors import NotProvided
from amux.materializer.ownfile import NotPlain, own_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amux.materializer.values import Identity

SIZE_LIMIT: Final = 1_048_576
DEADLINE: Final = 20.0

_PROVISIONER: Final = Path(__file__).with_name("provisioner.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy `source`, a file of the service's, to `target`, a path below the target's home.

    What is there is kept, unless `replace` or its digest is what `known` has for that place.
    """

    source: Path
    target: str
    replace: bool = False
    known: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """What was done below a home, by paths relative to it.

    `made` are new folders and files, `kept` targets that were left as they were. `digests` are the
    SHA-256 of what stands at each other target, by account and absolute path.
    """

    made: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)


def require_sources(copies: Iterable[Copy]) -> None:
    """Raise NotProvided unless each source can be copied."""
    for copy in copies:
        os.close(_open_source(copy.source))


def provide(
    identity: Identity | None,
    home: str,
    *,
    folders: tuple[str, ...] = (),
    copies: tuple[Copy, ...] = (),
    account: str = "",
) -> Provided:
    """Make these folders (0700) where missing, and copies (0600), below the home.

    `account` stands in front of the places in `known`. Raises NotProvided; files made before stay.
    """
    missing = tuple(folder for folder in folders if not _there(Path(home) / folder))
    if not missing and not copies:
        return Provided()
    with ExitStack() as stack:
        wishes = [("folder", _below(home, folder)) for folder in missing]
        passed, digests = [], {}
        for copy in copies:
            fd = stack.enter_context(descriptors.closing(_open_source(copy.source)))
            passed.append(fd)
            below = _below(home, copy.target)
            place = f"{account}{home.rstrip('/')}/{below}"
            digest = hashlib.sha256(os.pread(fd, SIZE_LIMIT, 0)).hexdigest()
            digests[below] = (place, digest)
            how = "always" if copy.replace else copy.known.get(place, "") or "none"
            wishes.append((f"copy-{fd}-{digest}-{how}", below))
        frames = _ask(identity, home, wishes, passed=tuple(passed))
    kept = tuple(os.fsdecode(content) for word, content in frames if word == b"kept")
    return Provided(
        made=tuple(os.fsdecode(content) for word, content in frames if word == b"made"),
        kept=kept,
        digests=dict(one for below, one in digests.items() if below not in kept),
    )


def read(
    identity: Identity,
    paths: Iterable[str],
    *,
    limit: int,
    traces: tuple[tuple[str, bytes], ...] = (),
) -> tuple[Mapping[str, bytes | None], tuple[bool, ...]]:
    """Return what the target can read of each file, at most `limit` bytes; None for no file.

    A path that ends in `/` is listed; a last segment `*.ending` stands for each such file (see
    `reading.content`). For each trace, a path and a text, the second answer says
    whether the file holds the text. A child reads, and not a thread with the target's file-system
    identity: for a thread of ours, /proc/self leads to our own descriptors and memory map. Plain
    files of the target's own need no child. Raises NotProvided.
    """
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    there = []
    for path in found:
        if Path(path).name.startswith("*."):
            if _there(Path(path).parent):
                there.append(path)
        elif _there(Path(path)):
            try:
                found[path] = own_file(path, identity, limit=limit)
            except NotPlain:
                there.append(path)
    wishes = [("list" if path.endswith("/") else "read", path) for path in there]
    wishes += [(f"holds-{text.hex()}", path) for path, text in traces]
    if not there and not any(_there(Path(path)) for path, _ in traces):
        return found, (False,) * len(traces)
    contents = look(identity, wishes, limit=limit)
    found |= zip(there, contents, strict=False)
    return found, tuple(content is not None for content in contents[len(there) :])


def look(
    identity: Identity, wishes: list[tuple[str, str]], *, limit: int
) -> tuple[bytes | None, ...]:
    """Have the target look, as `reading` does; None for each wish that found nothing.

    Raises NotProvided.
    """
    frames = _ask(identity, "/", wishes, limit=limit)
    if len(frames) != len(wishes):
        raise NotProvided("what reads files as the target left some out")
    return tuple(content if word == b"read" else None for word, content in frames)


def _there(path: Path) -> bool:
    """Say whether something may lie there; a child is not started for what is surely missing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _ask(
    identity: Identity | None,
    home: str,
    wishes: list[tuple[str, str]],
    *,
    passed: tuple[int, ...] = (),
    limit: int = 0,
) -> list[tuple[bytes, bytes]]:
    """Have a child do it and return its frames but the last; raise NotProvided unless all is done.

    The answer is the target's word by then: it is only ever split, never interpreted.
    """
    ids = ["", "", ""]
    if identity is not None:
        groups = ",".join(map(str, identity.groups))
        ids = [str(identity.uid), str(identity.gid), groups]
    fields = [*ids, home, str(limit), *(part for wish in wishes for part in wish)]
    try:
        done = subprocess.run(
            (sys.executable, "-I", "-S", str(_PROVISIONER)),
            input=b"".join(os.fsencode(field) + b"\0" for field in fields),
            capture_output=True,
            pass_fds=passed,
            cwd="/",
            env={},
            start_new_session=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotProvided(f"the target's files did not answer within {DEADLINE:.0f} s") from error
    frames = _frames(done.stdout)
    word, said = frames.pop() if frames else (b"", b"")
    if word == b"error":
        raise NotProvided(f"in {home}: {said.decode(errors='replace')}")
    if word != b"done":
        raise NotProvided("what makes and reads files as the target ended early")
    return frames


def _frames(answer: bytes) -> list[tuple[bytes, bytes]]:
    frames = []
    while answer:
        head, _, rest = answer.partition(b"\n")
        word, _, size = head.partition(b" ")
        if not size.isdigit():
            return []
        frames.append((word, rest[: int(size)]))
        answer = rest[int(size) :]
    return frames


def _below(home: str, target: str) -> str:
    """Return the target relative to the home; refuse what would leave it."""
    path = PurePosixPath(target.removeprefix("~/"))
    if path.is_absolute() and path.is_relative_to(home):
        path = path.relative_to(home)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in target:
        raise NotProvided(f"{target!r} is not a path below the target's home {home}")
    return str(path)


def _open_source(source: Path) -> int:
    """Open a regular file that only the service and root could have put there.

    Otherwise its owner could point the service at a secret that it cannot read itself.
    """
    real = Path(os.path.realpath(source))
    try:
        for path, fd in descriptors.walk(real.parent):
            descriptors.require_trusted(path, fd, last=path == real.parent)
            if path == real.parent:
                opened = os.open(
                    real.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd
                )
    except descriptors.Untrusted as error:
        raise NotProvided(f"{source} is not provided: {error}") from error
    except OSError as error:
        raise NotProvided(f"{source} cannot be provided: {error.strerror}") from error
    found = os.fstat(opened)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "it is not a regular file; name each file, never a whole folder"
    elif found.st_uid not in {0, os.geteuid()}:
        problem = f"it belongs to uid {found.st_uid}"
    elif found.st_size > SIZE_LIMIT:
        problem = f"it has {found.st_size} bytes, more than {SIZE_LIMIT}"
    if problem is not None:
        os.close(opened)
        raise NotProvided(f"{source} cannot be provided: {problem}")
    return opened
