"""How to reach a Hub and with which credential: the connection file, JSON, mode 0600.

{"schema": 1, "url": "unix:hub.sock" | "https://host:port", "token": "…", "ca_pem": "…"}

A home names its own Hub by `unix:hub.sock`, the socket in the home that the file lies in, so
that a copy or a moved home never reaches another's. Absolute addresses are for a launch's file.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from amux.hub.atomicfile import replace_file
from amux.hub.errors import HomeRefused, InvalidRequest
from amux.hub.home import OWN_SOCKET, private_socket
from amux.hub.secret import FORM
from amux.kinds import wrong_kind

if TYPE_CHECKING:
    from pathlib import Path

Role: TypeAlias = Literal["user", "runtime", "admin"]
ROLES: Final[tuple[Role, ...]] = ("user", "runtime", "admin")
SCHEMA: Final = 1
FOLDER: Final = "connections"
UNIX: Final = "unix:"
OWN_URL: Final = UNIX + OWN_SOCKET
"""The address of a home's own Hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A Hub's address and a credential for it. Raises HomeRefused for an `http://` address.

    `home` is the folder whose own Hub it is, where the address is the relative one.
    """

    url: str
    token: str = field(repr=False)
    ca_pem: str | None = field(default=None, repr=False)
    home: Path | None = None

    def __post_init__(self) -> None:
        for name, value in (("url", self.url), ("token", self.token)):
            if wrong := wrong_kind(f"Connection.{name}", value, (str,)):
                raise InvalidRequest(wrong)
        # A run that found the Hub away has an empty one, which is refused when it is used.
        if self.token and FORM.fullmatch(self.token) is None:
            raise HomeRefused(
                "the credential is not one that amux credential issue printed, and nothing else"
            )
        if self.url.startswith(UNIX + "/") or (self.url == OWN_URL and self.home is not None):
            return
        parts = urlsplit(self.url)
        if parts.scheme == "http":
            raise HomeRefused(
                "http:// is refused, on loopback too: any local user could have bound that port; "
                "use https:// or unix:/path"
            )
        plain = parts.path in {"", "/"} and not parts.query and not parts.fragment
        if parts.username is not None or parts.password is not None:
            raise HomeRefused("the address holds a name or a password; it is https://HOST:PORT")
        if parts.scheme != "https" or not parts.hostname or not plain:
            raise HomeRefused(f"{self.url!r} is not https://HOST:PORT or unix:/absolute/path")

    @property
    def socket_path(self) -> str | None:
        """Return the Unix socket's path, or None for an https address."""
        if self.home is not None:
            return str(private_socket(self.home))
        return self.url.removeprefix(UNIX) if self.url.startswith(UNIX) else None

    @property
    def remote(self) -> bool:
        """Say whether the Hub is reached over TLS."""
        return not self.url.startswith(UNIX)


def connection_path(home: Path, role: Role) -> Path:
    """Return where a home keeps its connection of this role."""
    return home / FOLDER / f"{role}.json"


def load_connection(path: Path) -> Connection:
    """Read a connection file. Raises HomeRefused when it is missing, open to others or damaged."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            data = file.read()
    except OSError as error:
        raise HomeRefused(f"cannot read the connection file {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise HomeRefused(
            f"{path} has mode {mode:04o} and holds a credential; run: chmod 600 {path}"
        )
    try:
        tree = json.loads(data)
    except ValueError as error:
        raise HomeRefused(f"the connection file {path} is not JSON") from error
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        raise HomeRefused(f"the connection file {path} is not of schema {SCHEMA}")
    url, token, ca_pem = tree.get("url"), tree.get("token"), tree.get("ca_pem")
    if not isinstance(url, str) or not isinstance(token, str):
        raise HomeRefused(f"the connection file {path} has no url or token")
    if ca_pem is not None and not isinstance(ca_pem, str):
        raise HomeRefused(f"ca_pem in {path} is not text")
    if url == OWN_URL or (url.startswith(UNIX) and path.parent.name == FOLDER):
        # Whatever stands there: a home's own Hub is the one whose socket lies in it.
        return Connection(url=OWN_URL, token=token, home=path.parent.parent)
    return Connection(url=url, token=token, ca_pem=ca_pem)


def save_connection(path: Path, connection: Connection) -> None:
    """Write a connection file as a whole, mode 0600. Raises HomeRefused."""
    tree = {"schema": SCHEMA, "url": connection.url, "token": connection.token}
    if connection.ca_pem is not None:
        tree["ca_pem"] = connection.ca_pem
    try:
        replace_file(path, json.dumps(tree, indent=1).encode() + b"\n")
    except OSError as error:
        raise HomeRefused(f"cannot write {path}: {error.strerror}") from error
