"""Make folders and files in the target's home, and read its files, as the target.

Standard library only. Started by `provision` in a Python with `-I -S`; reads one order (JSON)
on stdin: `identity`, `home`, `folders` (made where missing), `files` (each an inherited
descriptor and a path below the home), and `reads` (paths) up to `limit` bytes each. Answers
with JSON on stdout: `made` and `read` (base64, null for what is no readable file), or `error`.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import secrets
import stat
import sys
import types
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK = 65_536


class NotMade(Exception):
    """A folder or file could not be made; says which and why."""


def main() -> None:
    """Become the target, do what is ordered, answer."""
    order = json.load(sys.stdin.buffer)
    spec = importlib.util.spec_from_file_location("become", Path(__file__).with_name("become.py"))
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # it lies beside us
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    try:
        if order["identity"] is not None:
            module.become(types.SimpleNamespace(**order["identity"]))
        else:
            os.umask(0o077)
        made = _make(order) if order["folders"] or order["files"] else []
        read = {path: _read(path, order["limit"]) for path in order["reads"]}
    except module.NotBecome as error:
        answer: dict[str, object] = {"error": str(error)}
    except NotMade as error:
        answer = {"error": str(error)}
    else:
        answer = {"made": made, "read": read}
    json.dump(answer, sys.stdout)


def _make(order: dict[str, Any]) -> list[str]:
    """Make the folders, then the files."""
    made: list[str] = []
    at = "."
    try:
        home = os.open(order["home"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for at in order["folders"]:
            made += _descend(home, at.split("/"))[1]
        for file in order["files"]:
            at = file["target"]
            made += _place(home, at, file["fd"])
    except NotADirectoryError as error:
        raise NotMade(
            f"{at}: a link or a file is in the way; folders reached through links are not used"
        ) from error
    except OSError as error:
        raise NotMade(f"{at}: {error.strerror}") from error
    return made


def _read(path: str, limit: int) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return base64.b64encode(file.read(limit)).decode()


def _descend(home: int, segments: list[str]) -> tuple[int, list[str]]:
    """Open a folder below the home, making what is missing, 0700; links are not followed."""
    fd, made = os.dup(home), []
    for index, segment in enumerate(segments):
        try:
            os.mkdir(segment, 0o700, dir_fd=fd)
            made.append("/".join(segments[: index + 1]))
        except FileExistsError:
            pass
        below = os.open(segment, PASSAGE, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd, made


def _place(home: int, target: str, source: int) -> list[str]:
    """Copy an open file to a new one beside the target, 0600, and put it in the target's place."""
    *folders, name = target.split("/")
    folder, made = _descend(home, folders)
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, 0o600)
        while chunk := os.read(source, CHUNK):
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(fd)
        os.close(folder)
    return [*made, target]


if __name__ == "__main__":
    main()
