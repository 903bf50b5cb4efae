"""What a test session has left on the machine, found by comparing before and after."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from amux.hub import cgroup
from fixtures import ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED: Final = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/var/lib/amux"))  # noqa: S108  # looked at only
OURS: Final = re.compile(r"amux|claude|cc-|codex|pi-|jiti$|node-compile-cache$")
"""How names begin that amux, its tests and the agents make in a folder that all programs share."""
NOTED: Final = re.compile(r"amux-tests?-")
"""What is looked for by itself: another session's may be in use."""
FIXED: Final = f"codex-daemon-{os.geteuid()}"
"""What Codex makes once for an account, whatever its temporary folder is."""
GROUPS: Final = re.compile(r"amux-|unit-")
SOCKETS: Final = f"cc-socks-{os.geteuid()}"
FIRST_USER: Final = 1000


@dataclass(frozen=True, slots=True)
class Traces:
    """What is on the machine that a session could have made."""

    files: frozenset[Path]
    groups: frozenset[Path]

    @classmethod
    def now(cls) -> Traces:
        """Look at the machine."""
        return cls(files=frozenset(_files()), groups=frozenset(_groups()))

    def since(self, before: Traces) -> Iterator[str]:
        """Name what is here and was not before, and belongs to nothing that lives."""
        for path in sorted(self.files - before.files):
            yield f"file {path}"
        for path in sorted(self.groups - before.groups):
            yield f"control group {path}"


def sweep(before: Traces) -> None:
    """Remove the sockets of Claudes that were killed: some are at a fixed path of the account's.

    Claude puts one there where the path of its temporary folder is too long for a socket.
    """
    for path in sorted(Traces.now().files - before.files, reverse=True):
        if path.parent.name == SOCKETS and not psutil.pid_exists(int(path.stem)):
            path.unlink()
        elif path.name == SOCKETS:
            with contextlib.suppress(OSError):  # another one is in it
                path.rmdir()


def others() -> bool:
    """Say whether another test session runs on this machine: nobody knows whose files are whose."""
    if ledger.PLACE in os.environ:  # this one is a test of another
        return True
    ours = psutil.Process()
    family = {one.pid for one in (ours, *ours.parents(), *ours.children(recursive=True))}
    return any(
        process.pid not in family
        and any(word.endswith("pytest") for word in (process.info["cmdline"] or ())[:3])
        for process in psutil.process_iter(["cmdline"])
    )


def recorded(place: Path) -> Iterator[str]:
    """Name the accounts, groups and folders of the ledger that are still there."""
    names = {one.pw_name for one in pwd.getpwall()} | {one.gr_name for one in grp.getgrall()}
    for name, test in ledger.noted(place).items():
        if name in names:
            yield f"account {name}, made by {test}"
        elif name.startswith("/") and Path(name).exists():
            yield f"folder {name}, made by {test}"


def below(folder: Path) -> Iterator[str]:
    """Name what is in a folder that should be empty."""
    for path in sorted(folder.iterdir()):
        yield f"file {path}"


def described(processes: Iterable[psutil.Process]) -> Iterator[str]:
    """Name processes, each with the test that its environment names or whose folder it is in."""
    for process in processes:
        command, test = "?", "of an unknown test"
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline()) or process.name()
            words = [command, process.cwd(), *process.environ().values()]
            test = _test_in(process.environ().get(ledger.RUNNING, ""), words)
        yield f"process {process.pid} ({command[:200]}), {test}"


def _test_in(running: str, words: list[str]) -> str:
    if running:
        return f"of {running}"
    named = re.search(r"/pytest-\d+/(?:popen-\w+/)?(test_\w+)", " ".join(words))
    return f"of {named[1]}" if named else "of an unknown test"


def _files() -> Iterator[Path]:
    """Yield what is ours by its name, or is a deleted account's; what is of others is theirs."""
    accounts = {one.pw_uid for one in pwd.getpwall()}
    for folder in SHARED:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    owner = entry.stat(follow_symlinks=False).st_uid
                    nobodys = owner >= FIRST_USER and owner not in accounts
                    if nobodys or (OURS.match(entry.name) and not _apart(entry.name)):
                        yield Path(entry.path)
                        yield from _inside(entry)
    yield from Path.home().iterdir()


def _apart(name: str) -> bool:
    return name == FIXED or NOTED.match(name) is not None


def _inside(entry: os.DirEntry[str]) -> Iterator[Path]:
    """Yield what an agent adds to a folder that it keeps for one account."""
    if re.fullmatch(r"(claude|cc-socks)(-\d+)?", entry.name) and entry.is_dir():
        yield from Path(entry.path).iterdir()


def _groups() -> Iterator[Path]:
    """Yield the control groups by our names in which nothing lives: one that lives has an owner."""
    for _, point in cgroup.mounts():
        for path, folders, _ in os.walk(point):
            for name in filter(GROUPS.match, folders):
                with contextlib.suppress(OSError):
                    if not Path(path, name, "cgroup.procs").read_bytes():
                        yield Path(path, name)
