"""What a relocated home gets before its agent starts: the agent's folders, and provided files.

A provided file may be a login, which its agent renews by itself and stores in place of the old
one; the old one is then of no use to anybody. So a file that was written since amux put it there,
or that amux never put there, is kept, unless the launch says to replace it. What amux put where is
known by a digest in `<AMUX_HOME>/provided.json` (0600).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import locked, replace_file
from amux.launcher.errors import BadRequest
from amux.materializer.homefiles import provide, require_sources

if TYPE_CHECKING:
    from amux.launcher.steps.attempt import Attempt

FILE: Final = "provided.json"
SCHEMA: Final = 1


def furnish(attempt: Attempt) -> tuple[str, ...]:
    """Make in a relocated home what the agent needs there, as the account that owns it.

    Returns warnings: the provided files that were kept as their owner had left them.
    """
    target, request = attempt.target, attempt.request
    relocated = target.identity is not None or attempt.record.private_home
    if request.provide and not relocated:
        message = "--provide fills a relocated home; name one with --user or --private-home"
        raise BadRequest(message)
    if attempt.record.private_home:
        Path(target.home).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not relocated:
        return ()
    folders = target.provider.folders
    if not request.provide:
        provide(target.identity, target.home, folders=folders)
        return ()
    known = _known(attempt.host.home / FILE)
    account = "" if target.identity is None else f"{target.identity.uid}:"
    require_sources(request.provide)
    attempt.use_account()
    done = provide(
        target.identity,
        target.home,
        folders=folders,
        files=request.provide,
        known=known,
        account=account,
    )
    _remember(attempt.host.home / FILE, dict(done.digests))
    return tuple(
        f"{target.home}/{kept} is kept: it was written since amux provided it, or not by amux; "
        f"to put yours in its place: --provide FILE:{kept}:replace"
        for kept in done.kept
    )


def _known(path: Path) -> dict[str, str]:
    """Return the digest of what amux put last at each place; a damaged file knows nothing."""
    try:
        stored = json.loads(path.read_bytes())
        files = stored["files"] if stored["schema"] == SCHEMA else {}
        return {str(place): str(files[place]) for place in files}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _remember(path: Path, digests: dict[str, str]) -> None:
    if not digests:
        return
    with locked(path.with_name(f".{FILE}.lock")):
        known = _known(path)
        if known | digests != known:
            fields = {"schema": SCHEMA, "files": known | digests}
            replace_file(path, json.dumps(fields, indent=2, sort_keys=True).encode())
