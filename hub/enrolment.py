"""First use on one machine, and enrolment with a remote Hub: who fills `connections/`.

A home is either local or remote. Local: the account that owns AMUX_HOME is the operator
of its Hub, so its runtime credential may open launches for any Principal of that Hub. What
that account lost (a restored `identity/`, a credential that was revoked) is made anew.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import locked
from amux.hub.connection import (
    OWN_URL,
    ROLES,
    Connection,
    Role,
    connection_path,
    load_connection,
    save_connection,
)
from amux.hub.errors import HomeRefused
from amux.hub.home import open_private_folder
from amux.hub.identity import CredentialFile, PrincipalFile, is_principal_id
from amux.hub.identity import token as tokens
from amux.hub.residence import settle

if TYPE_CHECKING:
    from pathlib import Path

LOCAL_LABEL: Final = "local"


def enrol_local(home: Path) -> str | None:
    """Make what a local home needs to reach its own Hub; do nothing where it stands already.

    Makes the Principal named after the account, its three credentials and connection
    files, each where it is missing or the Hub no longer knows it. Returns that Principal's
    id, or None for a home that uses a remote Hub.
    """
    folder = open_private_folder(home / "connections")
    if remote_connection(home) is not None:
        return None
    identity = open_private_folder(home / "identity")
    settle(home)
    name = account_principal()
    principals, credentials = PrincipalFile(identity), CredentialFile(identity)
    known = principals.current().resolve(name)
    if known is not None and all(_stands(home, role, credentials, known.id) for role in ROLES):
        return known.id
    with locked(folder / ".lock"):
        known = principals.current().resolve(name)
        principal = known if known is not None else principals.add(name)
        for role in ROLES:
            if _stands(home, role, credentials, principal.id):
                continue
            token = credentials.issue(
                role,
                principal=None if role == "admin" else principal.id,
                allowed=None if role == "runtime" else (),
                label=LOCAL_LABEL,
                replacing_label=True,
            )
            made = Connection(url=OWN_URL, token=token.text, home=home)
            save_connection(connection_path(home, role), made)
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
    if not connection.remote:
        raise HomeRefused(
            "amux hub connect is for a Hub at https://HOST:PORT; a home's own needs no enrolment"
        )
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


def _stands(home: Path, role: Role, credentials: CredentialFile, principal: str) -> bool:
    """Say whether this role reaches the home's own Hub, with a credential that it knows."""
    path = connection_path(home, role)
    if not path.exists():
        return False
    connection = load_connection(path)
    token = tokens.parse(connection.token)
    if connection.url != OWN_URL or token is None:
        return False
    known = credentials.current().get(token.id)
    owner = None if role == "admin" else principal
    return (
        known is not None
        and tokens.matches(token, known.digest)
        and (known.kind, known.principal) == (role, owner)
    )
