"""Find a Python with which the target can run the agent-side command, by running that command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer import runs, trial
from amux.materializer.errors import InterpreterNotFound
from amux.materializer.runfiles import COMMAND
from amux.materializer.values import Identity, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLAGS: Final = "-IS"
QUESTION: Final = ("memory", "--help")
STANDARD_FOLDERS: Final = ("/usr/bin", "/usr/local/bin", "/bin", "/opt/local/bin")
# The kernel reads 256 bytes of a first line, older ones 128, and splits it at a blank.
FIRST_LINE_LIMIT: Final = 120
CACHED: Final = 256


def find(
    root: Path,
    cli: bytes,
    *,
    identity: Identity | None,
    environment: Mapping[str, str],
    cache: Path,
) -> str:
    """Return the path of an interpreter that runs `cli` for the target below this runs root.

    A plain launch (identity None) uses amux's own. What was found is kept in the file `cache`,
    per user, interpreter file, root and CLI. Raises InterpreterNotFound with all that was tried.
    """
    if identity is None:
        return sys.executable
    known = _load(cache)
    key = _key(root, cli, identity)
    path, seen = known.get(key, ("", ""))
    if path and seen == _signature(path):
        return path
    tried = []
    for path in _candidates(environment):
        reason = _try(path, root, cli, identity, environment)
        if reason is None:
            _store(cache, {**known, key: (path, _signature(path))})
            return path
        tried.append((path, reason))
    raise InterpreterNotFound(
        f"no Python can run the memory command as {identity.user}: "
        "install one that every user can run, such as /usr/bin/python3",
        tried=tuple(tried),
    )


def with_first_line(cli: bytes, interpreter: str) -> bytes:
    """Return the command so that executing it starts this interpreter, isolated from the user's."""
    if cli.startswith(b"#!"):
        cli = cli.partition(b"\n")[2]
    line = f"#!{interpreter} {FLAGS}\n"
    if len(line.encode()) > FIRST_LINE_LIMIT or any(blank in interpreter for blank in " \t"):
        # Both a shell command and a Python string; what pip writes for such paths.
        line = f"#!/bin/sh\n'''exec' \"{interpreter}\" {FLAGS} \"$0\" \"$@\"\n' '''\n"
    return os.fsencode(line) + cli


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    """Name what may be an interpreter, likeliest first, each file once."""
    seen = set()
    folders = [*STANDARD_FOLDERS, *environment.get("PATH", "").split(":")]
    names = [Path(sys.executable)]
    for folder in dict.fromkeys(each for each in folders if each.startswith("/")):
        names.append(Path(folder) / "python3")
        with contextlib.suppress(OSError):
            names += sorted(Path(folder).glob("python3.[0-9]*"), reverse=True)
    for path in names:
        with contextlib.suppress(OSError):
            found = path.stat()
            if path.name.endswith("-config") or (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            yield str(path)


def _try(
    path: str, root: Path, cli: bytes, identity: Identity, environment: Mapping[str, str]
) -> str | None:
    """Place the command in a run of its own and execute it as the target; None: it works."""
    paths = runs.allocate(root)
    files = (
        PlannedFile(name=COMMAND, content=with_first_line(cli, path), executable=True),
        PlannedFile(name="readable", content=b"", executable=False),
    )
    runs.apply(paths, files, identity)
    try:
        outcome = trial.run(
            (str(paths.commands / COMMAND), *QUESTION),
            identity=identity,
            environment=environment,
            reads=(str(paths.config / "readable"),),
        )
    finally:
        runs.remove(paths)
    return None if outcome.status == 0 else outcome.reason


def _key(root: Path, cli: bytes, identity: Identity) -> str:
    """Digest everything but the interpreter that the outcome depends on."""
    who = (identity.uid, identity.gid, identity.groups)
    facts = (*who, str(root), hashlib.sha256(cli).hexdigest())
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _signature(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def _load(cache: Path) -> dict[str, tuple[str, str]]:
    try:
        stored = json.loads(cache.read_bytes())
        return {str(key): (str(path), str(seen)) for key, (path, seen) in stored.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _store(cache: Path, known: dict[str, tuple[str, str]]) -> None:
    kept = dict(list(known.items())[-CACHED:])
    cache.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = cache.with_name(f".{cache.name}-{secrets.token_hex(8)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(kept, file)
    temporary.replace(cache)
