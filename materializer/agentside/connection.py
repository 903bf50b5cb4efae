"""Which Hub this process may talk to, and with which credential.

Inside a launch (`AMUX_MEMORY_BINDING` or `AMUX_CONNECTION` is set, even to nothing) it is
the connection of that launch or none; outside, the user's own. There is no other fallback.

A home names its own Hub by `unix:hub.sock`, the socket in that home, and each request then says
which folder is meant: the Hub of another one, which this home is a copy of, refuses it.
"""

from __future__ import annotations

import json
import os

from amux.materializer.agentside.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BINDING = "AMUX_MEMORY_BINDING"
CONNECTION = "AMUX_CONNECTION"
HOME = "AMUX_HOME"
SCHEMA = 1
OWN_URL = "unix:hub.sock"
HOME_ID = "home.id"
MAX_FILE = 256 * 1024  # bytes
NOT_A_CONNECTION = "it is not a connection file"


class Connection:
    """Where the Hub is (`unix:/abs` or `https://…`), the credential, and the frozen binding.

    `home` names the folder whose own Hub it is, `path` the file that was read.
    """

    __slots__ = ("binding", "ca_pem", "home", "path", "token", "url")

    def __init__(  # noqa: PLR0913  # each is one part of what a request is made of
        self,
        *,
        url: str,
        token: str,
        ca_pem: str | None,
        binding: str | None,
        home: str | None = None,
        path: str = "",
    ) -> None:
        self.url = url
        self.token = token
        self.ca_pem = ca_pem
        self.binding = binding
        self.home = home
        self.path = path

    def renewed(self) -> Connection | None:
        """Return what a home's own file holds now, or None where that is the same credential.

        The Hub of a home makes a credential anew that it no longer knows.
        """
        if self.home is None:
            return None
        fresh = _read(self.path, self.binding, inside=False)
        return None if fresh.token == self.token else fresh


def find_connection(environ: Mapping[str, str]) -> Connection:
    """Return the one connection that holds here; refuse rather than fall back."""
    if BINDING in environ or CONNECTION in environ:
        path = environ.get(CONNECTION, "")
        if not path:
            raise Failure(
                "no_connection",
                f"This launch has no memory connection ({CONNECTION} is not set); a user's own"
                " credential is never used inside a launch.",
            )
        if not os.path.isabs(path):
            raise Failure("no_connection", f"{CONNECTION} is {path!r}; it has to be absolute.")
        return _read(path, environ.get(BINDING), inside=True)
    home = environ.get(HOME) or os.path.join(os.path.expanduser("~"), ".amux")
    if not os.path.isabs(home):
        raise Failure("no_connection", f"{HOME} is {home!r}; it has to be an absolute path.")
    if not _is_printable(home):
        raise Failure(
            "no_connection",
            f"{HOME} is {home!r}: not UTF-8, or with a control character; use another folder.",
        )
    return _read(os.path.join(home, "connections", "user.json"), None, inside=False)


def find_witness(environ: Mapping[str, str]) -> str | None:
    """Return where this launch hears that its tools were asked for, with a credential or without.

    None where that is not said, as outside a launch.
    """
    try:
        with open(environ.get(CONNECTION, ""), "rb") as file:
            place = json.loads(file.read(MAX_FILE)).get("witness")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return place if isinstance(place, str) and os.path.isabs(place) else None


def _read(path: str, binding: str | None, *, inside: bool) -> Connection:
    fields = _parse(path, _load(path, inside=inside))
    if binding is not None and not _fits_header(binding):
        raise Failure("no_connection", f"The value of {BINDING} cannot be a binding.")
    url, home = fields.url, None
    if not inside and url.startswith(("unix:/", OWN_URL)):
        # Whatever socket it names: a home's Hub is the one whose socket lies in that home.
        place = os.path.realpath(os.path.dirname(os.path.dirname(path)))
        url, home = f"unix:{place}/hub.sock", _home_identity(place)
    return Connection(
        url=url, token=fields.token, ca_pem=fields.ca_pem, binding=binding, home=home, path=path
    )


def _load(path: str, *, inside: bool) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE)
    except FileNotFoundError as error:
        if inside:
            raise _unusable(path, error.strerror or "not found") from error
        raise Failure(
            "unavailable",
            f"There is no connection to a Hub yet ({path} does not exist): start one with"
            " `amux hub serve`, or enrol with `amux hub connect`.",
        ) from error
    except (OSError, ValueError) as error:
        raise _unusable(path, getattr(error, "strerror", None) or str(error)) from error


class _Fields:
    """What a connection file holds, checked."""

    __slots__ = ("ca_pem", "token", "url")

    def __init__(self, *, url: str, token: str, ca_pem: str | None) -> None:
        self.url = url
        self.token = token
        self.ca_pem = ca_pem


def _parse(path: str, raw: bytes) -> _Fields:
    try:
        fields = json.loads(raw)
        url, token, ca_pem = fields["url"], fields["token"], fields.get("ca_pem")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _unusable(path, NOT_A_CONNECTION) from error
    if fields.get("schema") != SCHEMA:
        raise _unusable(path, "it was written by another version of amux")
    if not (_is_address(url) and _fits_header(token)):
        raise _unusable(path, NOT_A_CONNECTION)
    if ca_pem is not None and not isinstance(ca_pem, str):
        raise _unusable(path, NOT_A_CONNECTION)
    return _Fields(url=url, token=token, ca_pem=ca_pem)


def _home_identity(home: str) -> str:
    """Say which folder the home is: device, inode, and the identity that it was given."""
    info = os.stat(home)
    here = f"{info.st_dev} {info.st_ino}"
    try:
        with open(os.path.join(home, HOME_ID), "rb") as file:
            identity, _, place = file.read(256).decode("ascii", "replace").strip().partition(" ")
    except OSError:
        identity, place = "", here
    return f"{info.st_dev}:{info.st_ino}:{identity if place == here else ''}"


def _unusable(path: str, reason: str) -> Failure:
    return Failure("no_connection", f"The connection file {path} cannot be used: {reason}.")


def _is_printable(path: str) -> bool:
    """Tell whether a path can be named in settings, in JSON and to people, as the Hub demands."""
    try:
        return os.fsencode(path).decode().isprintable()
    except UnicodeDecodeError:
        return False


def _is_address(value: object) -> bool:
    """Tell whether a value is an address; a Unix socket's path may hold any letter."""
    if isinstance(value, str) and value.startswith("unix:"):
        return "\0" not in value
    return _fits_header(value)


def _fits_header(value: object) -> bool:
    """Tell whether a value can stand in one HTTP header line as it is."""
    return isinstance(value, str) and value.isascii() and value.isprintable() and value != ""
