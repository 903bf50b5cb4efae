"""A pair of systemd user units for one home: a socket at `hub.sock`, and the Hub behind it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import replace_file
from amux.hub.errors import HomeRefused
from amux.hub.home import private_socket
from amux.hub.unixsocket import LONGEST_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "amux-hub-"
MADE: Final = "# Made by amux hub install-unit"
UNIT_FILE: Final = 0o644
# systemd takes no program whose name holds one of these, and any word after it.
_REFUSED: Final = frozenset("\"'\\")
_THROUGH_SHELL: Final = ("/bin/sh", "-c", 'exec "$@"', "amux")
_KEPT: Final = ("AMUX_RUNS",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The two units of a home: their files, and what is in them."""

    socket: Path
    service: Path
    socket_text: str
    service_text: str

    def files(self) -> tuple[tuple[Path, str], ...]:
        """Return each file and its text."""
        return (self.socket, self.socket_text), (self.service, self.service_text)

    @property
    def enabled(self) -> bool:
        """Say whether systemd starts the socket with the account's manager."""
        return os.path.lexists(self.socket.parent / "sockets.target.wants" / self.socket.name)


def unit_name(home: Path) -> str:
    """Return the name that both units of this home have before their suffix."""
    return PREFIX + hashlib.sha256(os.fsencode(home)).hexdigest()[:12]


def plan_units(home: Path, environ: Mapping[str, str], *, python: str) -> Units:
    """Return the units of a home for the account's own manager; nothing is written.

    `python` is the interpreter that has amux. Raises HomeRefused where systemd could not listen.
    """
    path = private_socket(home)
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise HomeRefused(
            f"systemd cannot listen at {path}, which is longer than {LONGEST_PATH} bytes; use a "
            "shorter AMUX_HOME, or let a service of your own run: amux hub serve"
        )
    name = unit_name(home)
    folder = _unit_folder(environ)
    variables = {"AMUX_HOME": str(home)}
    variables |= {key: environ[key] for key in _KEPT if environ.get(key)}
    written = " ".join(_quoted(f"{key}={value}") for key, value in variables.items())
    words: tuple[str, ...] = (python, "-P", "-m", "amux.hub.server")
    if _REFUSED.intersection(python):
        words = (*_THROUGH_SHELL, *words)
    # The colon keeps systemd from looking for variables in the words.
    command = " ".join(map(_quoted, (f":{words[0]}", *words[1:])))
    head = f"{MADE} for {home} - put changes into a drop-in: systemctl --user edit"
    return Units(
        socket=folder / f"{name}.socket",
        service=folder / f"{name}.service",
        socket_text=(
            f"{head} {name}.socket\n"
            "[Unit]\n"
            f"Description=amux Hub socket ({_literal(home)})\n"
            "[Socket]\n"
            f"ListenStream={_literal(path)}\n"
            "SocketMode=0600\n"
            "DirectoryMode=0700\n"
            "Backlog=4096\n"
            "RemoveOnStop=yes\n"
            "[Install]\n"
            "WantedBy=sockets.target\n"
        ),
        service_text=(
            f"{head} {name}.service\n"
            "[Unit]\n"
            f"Description=amux Hub ({_literal(home)})\n"
            f"Requires={name}.socket\n"
            f"After={name}.socket\n"
            "[Service]\n"
            "Type=exec\n"
            f"ExecStart={command}\n"
            f"Environment={written}\n"
            "UnsetEnvironment=PYTHONPATH PYTHONHOME PYTHONSTARTUP\n"
            "WorkingDirectory=/\n"
            "UMask=0077\n"
            "TimeoutStopSec=30\n"
            "Restart=on-failure\n"
            "RestartPreventExitStatus=75 78\n"
        ),
    )


def install(units: Units) -> None:
    """Write both files, or neither where one of that name is not ours. Raises HomeRefused."""
    for path, _ in units.files():
        _refuse_foreign(path)
    try:
        units.socket.parent.mkdir(parents=True, exist_ok=True)
        for path, text in units.files():
            replace_file(path, text.encode(), mode=UNIT_FILE)
    except OSError as error:
        raise HomeRefused(f"cannot write {units.socket.parent}: {error.strerror}") from error


def uninstall(units: Units) -> bool:
    """Remove both files; False where there is none. Raises HomeRefused for others' and in use."""
    found = [path for path, _ in units.files() if _refuse_foreign(path)]
    if units.enabled:
        name = units.socket.stem
        raise HomeRefused(
            f"{units.socket.name} is enabled; first run: "
            f"systemctl --user disable --now {name}.socket {name}.service"
        )
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _refuse_foreign(path: Path) -> bool:
    """Say whether our file is there; raise HomeRefused for one that is not of our making."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            ours = os.read(descriptor, len(MADE)) == MADE.encode()
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return False
    except OSError:
        ours = False
    if not ours:
        raise HomeRefused(f"{path} was not made by amux; move it away, or keep it and use that")
    return True


def _unit_folder(environ: Mapping[str, str]) -> Path:
    """Return where the account's own units are. Raises HomeRefused where nothing says it."""
    named = environ.get("XDG_CONFIG_HOME", "")
    if Path(named).is_absolute():
        return Path(named) / "systemd" / "user"
    account_home = environ.get("HOME", "")
    if not Path(account_home).is_absolute():
        raise HomeRefused("neither XDG_CONFIG_HOME nor HOME is set to an absolute path; set HOME")
    return Path(account_home) / ".config" / "systemd" / "user"


def _literal(value: Path) -> str:
    """Return it for a line that systemd takes as it is, but for its specifiers."""
    return str(value).replace("%", "%%")


def _quoted(word: str) -> str:
    """Return one word of a line that systemd splits."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
