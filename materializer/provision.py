"""Make and read files in the target's home, without ever going there as the service.

A child that already holds the target's identity does both. The service only opens what is to be
copied, and passes the descriptor: a link that the target made leads to nothing that the target
could not reach itself.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from materializer import descriptors
from materializer.errors import NotProvided

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from materializer.values import Identity

SIZE_LIMIT: Final = 1_048_576
DEADLINE: Final = 20.0

_PROVISIONER: Final = Path(__file__).with_name("provisioner.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy `source`, a file of the service's, to `target`, a path below the target's home."""

    source: Path
    target: str


def provide(
    identity: Identity | None,
    home: str,
    *,
    folders: tuple[str, ...] = (),
    copies: tuple[Copy, ...] = (),
) -> tuple[str, ...]:
    """Make these folders (0700) where missing, and copies (0600), below the home.

    Returns the paths made, relative to the home. Raises NotProvided; files made before stay.
    """
    missing = tuple(folder for folder in folders if not _there(Path(home) / folder))
    if not missing and not copies:
        return ()
    with ExitStack() as stack:
        files = []
        for copy in copies:
            fd = stack.enter_context(descriptors.closing(_open_source(copy.source)))
            files.append({"fd": fd, "target": _below(home, copy.target)})
        answer = _ask(
            identity,
            {"home": home, "folders": [_below(home, one) for one in missing], "files": files},
            tuple(file["fd"] for file in files if isinstance(file["fd"], int)),
        )
        return tuple(answer["made"])


def read(identity: Identity, paths: Iterable[str], *, limit: int) -> Mapping[str, bytes | None]:
    """Return what the target can read of each file, at most `limit` bytes; None for no file.

    Raises NotProvided where the target's identity cannot be taken on.
    """
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    there = [path for path in found if _there(Path(path))]
    if there:
        answer = _ask(identity, {"reads": there, "limit": limit}, ())
        for path, content in answer["read"].items():
            found[path] = None if content is None else base64.b64decode(content)
    return found


def _there(path: Path) -> bool:
    """Say whether something may lie there; a child is not started for what is surely missing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _ask(
    identity: Identity | None, wishes: Mapping[str, object], passed: tuple[int, ...]
) -> dict[str, Any]:
    order = {
        "identity": None if identity is None else asdict(identity),
        "folders": [],
        "files": [],
        "reads": [],
        **wishes,
    }
    try:
        done = subprocess.run(
            (sys.executable, "-I", "-S", str(_PROVISIONER)),
            input=json.dumps(order).encode(),
            capture_output=True,
            pass_fds=passed,
            cwd="/",
            env={},
            start_new_session=True,
            timeout=DEADLINE,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise NotProvided(f"the target's home did not answer within {DEADLINE:.0f} s") from error
    except ValueError as error:
        raise NotProvided("what makes files in the target's home ended early") from error
    if "error" in answer:
        raise NotProvided(f"in {wishes.get('home', 'the home')}: {answer['error']}")
    return dict(answer)


def _below(home: str, target: str) -> str:
    """Return the target relative to the home; refuse what would leave it."""
    path = PurePosixPath(target.removeprefix("~/"))
    if path.is_absolute() and path.is_relative_to(home):
        path = path.relative_to(home)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise NotProvided(f"{target!r} is not a path below the target's home {home}")
    return str(path)


def _open_source(source: Path) -> int:
    """Open a regular file that only the service and root could have put there.

    Otherwise its owner could point the service at a secret that it cannot read itself.
    """
    real = Path(os.path.realpath(source))
    try:
        for path, fd in descriptors.walk(real.parent):
            descriptors.require_trusted(path, fd, last=False)
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
