"""First use on one machine, and enrolment with a remote Hub: who fills `connections/`.

A home is either local or remote. Local: the account that owns AMUX_HOME is the operator
of its Hub, so its runtime credential may open launches for any Principal of that Hub.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING, Final

from hub.atomicfile import locked
from hub.connection import (
    ROLES,
    UNIX,
    Connection,
    Role,
    connection_path,
    load_connection,
    save_connection,
)
from hub.errors import HomeRefused
from hub.home import open_private_folder, private_socket
from hub.identity import CredentialFile, PrincipalFile, is_principal_id
from hub.identity import token as tokens

if TYPE_CHECKING:
    from pathlib import Path

LOCAL_LABEL: Final = "local"


def enrol_local(home: Path) -> str | None:
    """Make what the first use of a local home needs; do nothing where it stands already.

    Makes the Principal named after the account, its three credentials and connection
    files. Returns that Principal's id, or None for a home that uses a remote Hub.
    """
    folder = open_private_folder(home / "connections")
    if remote_connection(home) is not None:
        return None
    identity = open_private_folder(home / "identity")
    url = UNIX + str(private_socket(home))
    name = account_principal()
    if all(_stands(home, role, url) for role in ROLES):
        return name
    with locked(folder / ".lock"):
        principals = PrincipalFile(identity)
        known = principals.current().resolve(name)
        principal = known if known is not None else principals.add(name)
        credentials = CredentialFile(identity)
        for role in ROLES:
            if _stands(home, role, url):
                continue
            token = credentials.issue(
                role,
                principal=None if role == "admin" else principal.id,
                allowed=None if role == "runtime" else (),
                label=LOCAL_LABEL,
                replacing_label=True,
            )
            save_connection(connection_path(home, role), Connection(url=url, token=token.text))
    return principal.id


def remote_connection(home: Path) -> Connection | None:
    """Return a connection of this home to a remote Hub, the runtime's before the user's."""
    order: tuple[Role, ...] = ("runtime", "user", "admin")
    for role in order:
        path = connection_path(home, role)
        if path.exists():
            connection = load_connection(path)
            if connection.remote:
                return connection
    return None


def connect(home: Path, connection: Connection) -> Role:
    """Enrol this home with a remote Hub; local connections of the home are put away.

    The role follows from the credential's kind. Raises HomeRefused for another text.
    """
    token = tokens.parse(connection.token)
    if token is None or token.kind == "agent":
        raise HomeRefused(
            "the token is not one of a user, a runtime or an admin; "
            "the Hub's operator makes one with: amux credential issue"
        )
    folder = open_private_folder(home / "connections")
    with locked(folder / ".lock"):
        for role in ROLES:
            path = connection_path(home, role)
            if path.exists() and not load_connection(path).remote:
                path.unlink()
        save_connection(connection_path(home, token.kind), connection)
    return token.kind


def disconnect(home: Path) -> bool:
    """Remove every connection to a remote Hub; False when there was none."""
    folder = open_private_folder(home / "connections")
    left = False
    with locked(folder / ".lock"):
        for role in ROLES:
            path = connection_path(home, role)
            if path.exists() and load_connection(path).remote:
                path.unlink()
                left = True
    return left


def account_principal() -> str:
    """Return the Principal id that the first use gives to this account."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = f"uid-{os.geteuid()}"
    plain = re.sub(r"[^A-Za-z0-9._@+-]", "-", name)[:128]
    return plain if is_principal_id(plain) else f"uid-{os.geteuid()}"


def _stands(home: Path, role: Role, url: str) -> bool:
    path = connection_path(home, role)
    return path.exists() and load_connection(path).url == url
