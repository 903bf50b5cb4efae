"""Put folders and copies of the service's files into the target's home, as the target."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors, filerequests
from amux.materializer.errors import NotProvided
from amux.materializer.targetfiles import exists

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amux.materializer.filerequests import Request
    from amux.materializer.values import Identity, ProvidedFile

SIZE_LIMIT: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """What was done below a home, by paths relative to it.

    `made` are new folders and files, `kept` the targets that were left as they were. `digests` are
    the SHA-256 of what is now at the other targets, by account and absolute path.
    """

    made: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A request to copy one file: `target` is below the home, `key` names it among the digests."""

    request: Request
    target: str
    key: str
    digest: str


def require_sources(files: Iterable[ProvidedFile]) -> None:
    """Raise NotProvided unless each source can be copied."""
    for file in files:
        os.close(_open_source(file.source))


def provide(  # noqa: PLR0913  # all but the home by keyword
    identity: Identity | None,
    home: str,
    *,
    folders: tuple[str, ...] = (),
    files: tuple[ProvidedFile, ...] = (),
    known: Mapping[str, str] | None = None,
    account: str = "",
) -> Provided:
    """Make these folders (0700) where missing, and copies of files (0600), below the home.

    What is at a target is kept, unless the file says `replace` or its digest is the one in
    `known`, by `account` and absolute path. Raises NotProvided; what was made before it stays.
    """
    missing = tuple(folder for folder in folders if not exists(Path(home) / folder))
    if not missing and not files:
        return Provided()
    with ExitStack() as stack:
        sources = tuple(
            stack.enter_context(descriptors.closing(_open_source(file.source))) for file in files
        )
        copies = [
            _copy(file, source, home, account, known or {})
            for file, source in zip(files, sources, strict=True)
        ]
        requests = [filerequests.make_folder(_below(home, folder)) for folder in missing]
        requests += [copy.request for copy in copies]
        answers = filerequests.ask(identity, requests, home=home, passed=sources)
    made = tuple(os.fsdecode(one.content) for one in answers if one.word == b"made")
    kept = tuple(os.fsdecode(one.content) for one in answers if one.word == b"kept")
    digests = {copy.key: copy.digest for copy in copies if copy.target not in kept}
    return Provided(made=made, kept=kept, digests=digests)


def _copy(
    file: ProvidedFile, source: int, home: str, account: str, known: Mapping[str, str]
) -> _Copy:
    target = _below(home, file.target)
    key = f"{account}{home.rstrip('/')}/{target}"
    digest = hashlib.sha256(os.pread(source, SIZE_LIMIT, 0)).hexdigest()
    replaceable = "always" if file.replace else known.get(key, "")
    request = filerequests.copy(target, source=source, digest=digest, replaceable=replaceable)
    return _Copy(request=request, target=target, key=key, digest=digest)


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

    Another account could otherwise have the service copy a secret that it cannot read itself.
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
