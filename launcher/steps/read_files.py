"""Read the files that a provider asked about, with the rights of the account they belong to.

A service that reads as root what a target named could be led to its own secrets by a link, and
they would end in the target's own arguments. So a worker that is the target does the reading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from amux.materializer import reading, targetfiles
from amux.providers.base import MAX_FACT_BYTES, Facts

if TYPE_CHECKING:
    from amux.materializer.values import Identity
    from amux.providers.base import FileSearch


def read_facts(
    paths: tuple[str, ...], identity: Identity | None, searches: tuple[FileSearch, ...] = ()
) -> Facts:
    """Return each path's first MAX_FACT_BYTES bytes, or None where no regular file can be read.

    A path that ends in `/` is listed: name, size and time of change in nanoseconds, a line each.
    Raises NotProvided where the target's files cannot be asked for.
    """
    if identity is None:
        return Facts(
            {path: _read(os.fsencode(path)) for path in paths},
            frozenset(one for one in searches if reading.contains(os.fsencode(one.path), one.text)),
        )
    found, held = targetfiles.read(
        identity,
        paths,
        limit=MAX_FACT_BYTES,
        searches=tuple((search.path, search.text) for search in searches),
    )
    return Facts(
        found, frozenset(search for search, there in zip(searches, held, strict=True) if there)
    )


def _read(path: bytes) -> bytes | None:
    if path.endswith(b"/"):
        return reading.listing(path)
    return reading.content(path, MAX_FACT_BYTES)
