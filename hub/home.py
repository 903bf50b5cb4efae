"""AMUX_HOME and the folders that follow from it: who may own them, and where sockets stand.

`open_home` is the only place that makes or accepts an AMUX_HOME. The runs root is where
isolated launches get their files; the agents' socket stands beside it, because a target
user cannot reach into AMUX_HOME.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused
from amux.hub.residence import settle

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
PASSABLE_FOLDER: Final = 0o711
OWN_SOCKET: Final = "hub.sock"
RUN_MARKER: Final = "AMUX_RUN"
"""The variable that marks every process of an agent's run."""
ROOT_RUNS: Final = Path("/var/lib/amux")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def home_path(environ: Mapping[str, str]) -> Path:
    """Return where AMUX_HOME is, links resolved, without making or checking it.

    Raises HomeRefused when AMUX_HOME is relative or not printable UTF-8, or when neither it nor
    HOME is set.
    """
    named = environ.get("AMUX_HOME")
    if named:
        path = Path(named)
        if not path.is_absolute():
            raise HomeRefused(f"AMUX_HOME is {named!r}; it has to be an absolute path")
    else:
        account_home = environ.get("HOME")
        if not account_home or not Path(account_home).is_absolute():
            raise HomeRefused(
                "neither AMUX_HOME nor HOME is set to an absolute path; set AMUX_HOME"
            )
        path = Path(account_home) / ".amux"
    return _written_out(Path(os.path.realpath(path)))


def _written_out(path: Path) -> Path:
    """Return the path unless the files that name it could not: settings, JSON, TOML, HTTP."""
    try:
        text = os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise HomeRefused(f"the path {str(path)!r} is not UTF-8; use another folder") from error
    if not text.isprintable():
        raise HomeRefused(f"the path {text!r} holds a control character; use another folder")
    return path


def open_home(environ: Mapping[str, str]) -> Path:
    """Return AMUX_HOME with links resolved once, made with mode 0700 when it is missing.

    Raises HomeRefused for a folder of another account or one that group or others may
    write, and inside an agent's run rather than make another home there. Read permission of group
    and others is taken away.
    """
    path = home_path(environ)
    if environ.get(RUN_MARKER) and not environ.get("AMUX_HOME") and not path.exists():
        raise HomeRefused(
            f"this is inside an agent that amux launched, and {path} is not the home of that "
            "amux; here `amux memory` reaches the agent's own memory. To make another home all the "
            "same, set AMUX_HOME"
        )
    home = open_private_folder(path)
    settle(home)
    return home


def open_private_folder(path: Path) -> Path:
    """Make or check one folder of ours, mode 0700; raises HomeRefused."""
    info = _make_folder(path, PRIVATE_FOLDER)
    if stat.S_IMODE(info.st_mode) & _OTHERS:
        path.chmod(PRIVATE_FOLDER)
    return path


def open_passable_folder(path: Path) -> Path:
    """Make or check a folder of ours, mode 0711 when made, that a target user can pass through.

    Raises HomeRefused when somebody else owns it or may write in it, or could put another
    folder in its place.
    """
    _make_folder(path, PASSABLE_FOLDER)
    for parent in path.parents:
        info = parent.stat()
        shared = info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX
        if info.st_uid not in {0, os.geteuid()} or shared:
            raise HomeRefused(
                f"{parent} is owned or writable by others, who could replace {path}; "
                "set AMUX_RUNS to a folder below ones that only you or root can change"
            )
    return path


def runs_root(home: Path, environ: Mapping[str, str], *, euid: int) -> Path:
    """Return the folder of all runs: AMUX_RUNS, `<home>/runs`, or for root below /var/lib/amux.

    `home` is the value of `open_home`. Nothing is made. Raises HomeRefused when AMUX_RUNS
    is relative.
    """
    named = environ.get("AMUX_RUNS")
    if named:
        path = Path(named)
        if not path.is_absolute():
            raise HomeRefused(f"AMUX_RUNS is {named!r}; it has to be an absolute path")
        return _written_out(Path(os.path.realpath(path)))
    if euid == 0:
        digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
        return ROOT_RUNS / digest / "runs"
    return home / "runs"


def agent_socket(home: Path, environ: Mapping[str, str], *, euid: int) -> Path:
    """Return the path of the socket on which only `agent` credentials are accepted."""
    return runs_root(home, environ, euid=euid).parent / "agent.sock"


def private_socket(home: Path) -> Path:
    """Return the path of the Hub's private socket."""
    return home / OWN_SOCKET


def _make_folder(path: Path, mode: int) -> os.stat_result:
    """Make the folder and its missing parents; refuse one that is not ours alone to write."""
    try:
        # What this process makes has its mode whatever the umask is.
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    folder.chmod(mode)
        info = path.stat()
    except OSError as error:
        raise HomeRefused(f"cannot make or reach {path}: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode):
        raise HomeRefused(f"{path} is not a folder")
    if info.st_uid != os.geteuid():
        raise HomeRefused(
            f"{path} belongs to uid {info.st_uid}, not to you (uid {os.geteuid()}); "
            "set AMUX_HOME to a folder of your own"
        )
    if stat.S_IMODE(info.st_mode) & _OTHERS_WRITE:
        raise HomeRefused(
            f"{path} has mode {stat.S_IMODE(info.st_mode):04o}: group or others may write in it; "
            f"run: chmod go-w {path}"
        )
    return info
