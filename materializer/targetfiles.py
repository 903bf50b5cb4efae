"""Read files with the target's rights: what the target cannot read, the service does not tell.

A worker that is the target reads, and not a thread with the target's file-system identity: for a
thread of ours, /proc/self leads to our own descriptors and memory map. Plain files of the target's
own need no worker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amux.materializer import filerequests
from amux.materializer.errors import NotProvided
from amux.materializer.plainfile import NotPlain, read_plain_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amux.materializer.filerequests import Request
    from amux.materializer.values import Identity


def read(
    identity: Identity,
    paths: Iterable[str],
    *,
    limit: int,
    searches: Sequence[tuple[str, bytes]] = (),
) -> tuple[Mapping[str, bytes | None], tuple[bool, ...]]:
    """Return what the target can read of each file, at most `limit` bytes; None for no file.

    A path that ends in `/` is listed; a last segment `*.ending` stands for each such file (see
    `reading.content`). The second answer says for each search, a path and a text, whether the
    file contains the text. Raises NotProvided.
    """
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    there = [path for path in found if _may_exist(path)]
    for path in there:
        found[path] = _read_directly(path, identity, limit)
    left = [path for path in there if found[path] is None]
    if not left and not any(_may_exist(path) for path, _ in searches):
        return found, (False,) * len(searches)
    requests = [*map(_read_or_list, left), *(filerequests.contains(*one) for one in searches)]
    contents = look(identity, requests, limit=limit)
    found |= zip(left, contents, strict=False)
    return found, tuple(content is not None for content in contents[len(left) :])


def readable(identity: Identity, paths: Sequence[str]) -> frozenset[str]:
    """Return the files and folders that the target can read. Raises NotProvided."""
    kinds = (filerequests.read, filerequests.list_folder)
    found = look(identity, [kind(path) for path in paths for kind in kinds], limit=1)
    pairs = zip(paths, found[::2], found[1::2], strict=True)
    return frozenset(path for path, *contents in pairs if contents != [None, None])


def appended(
    identity: Identity, pattern: str, since: int, digest: str, *, limit: int
) -> bytes | None:
    """Return what `reading.appended` does, for the target. Raises NotProvided."""
    (found,) = look(identity, [filerequests.appended(pattern, since, digest)], limit=limit)
    return found


def newer(
    identity: Identity, patterns: Sequence[str], since: int, *, limit: int
) -> tuple[bytes, ...]:
    """Return the paths that `reading.matching` finds for the patterns. Raises NotProvided."""
    requests = [filerequests.newer(pattern, since) for pattern in patterns]
    answers = look(identity, requests, limit=limit)
    return tuple(path for answer in answers if answer for path in answer.split(b"\0"))


def look(
    identity: Identity, requests: Sequence[Request], *, limit: int
) -> tuple[bytes | None, ...]:
    """Have the target read, list or search; None for each request that found nothing.

    Raises NotProvided.
    """
    answers = filerequests.ask(identity, requests, limit=limit)
    if len(answers) != len(requests):
        raise NotProvided("what reads files as the target left some out")
    return tuple(one.content if one.word == b"read" else None for one in answers)


def _read_directly(path: str, identity: Identity, limit: int) -> bytes | None:
    """Return the content of a plain file of the target's; None where the worker is needed."""
    if "*" in path:
        return None
    try:
        return read_plain_file(path, identity, limit=limit)
    except NotPlain:
        return None


def _read_or_list(path: str) -> Request:
    return filerequests.list_folder(path) if path.endswith("/") else filerequests.read(path)


def _may_exist(path: str) -> bool:
    """Return False for what is surely missing, which needs no worker."""
    if "*" in path:  # a pattern, or a name
        return exists(Path(path.partition("*")[0]).parent)
    return exists(Path(path))


def exists(path: Path) -> bool:
    """Say whether something may be at this path; True also where that cannot be found out."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True
