"""Which Principal each account of this machine serves: once one, never another.

What a Principal's agents leave in an account's home (conversations, credentials, shell
history) is readable for whoever uses the account next, whatever the Hub refuses.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from typing import TYPE_CHECKING, Final

from amux.materializer.errors import MaterializeError, UidTaken

if TYPE_CHECKING:
    from pathlib import Path

    from amux.materializer.values import Identity

SCHEMA: Final = 1


def claim(registry: Path, identity: Identity, principal: str) -> bool:
    """Record that the account serves this Principal; say whether it is recorded for the first time.

    `registry` is a JSON file of the service's, made when missing. Raises UidTaken for an account
    that serves another Principal, and MaterializeError for a registry that cannot be read: not
    knowing is no permission.
    """
    folder = os.open(registry.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        uids = _load(registry)
        holder = uids.get(str(identity.uid))
        if holder == principal:
            return False
        if holder is not None:
            raise UidTaken(
                f"user {identity.user} (uid {identity.uid}) serves Principal {holder}; a launch "
                f"for {principal} needs an account of its own. To reuse the account, empty its "
                f"home and remove the uid from {registry}"
            )
        _store(registry, folder, {**uids, str(identity.uid): principal})
        return True
    finally:
        os.close(folder)


def release(registry: Path, identity: Identity, principal: str) -> None:
    """Take a claim back, for a launch that came to nothing before the account was used."""
    folder = os.open(registry.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        uids = _load(registry)
        if uids.get(str(identity.uid)) == principal:
            del uids[str(identity.uid)]
            _store(registry, folder, uids)
    finally:
        os.close(folder)


def _load(registry: Path) -> dict[str, str]:
    try:
        stored = json.loads(registry.read_bytes())
        if stored["schema"] != SCHEMA:
            raise MaterializeError(f"{registry} has schema {stored['schema']}, not {SCHEMA}")
        uids = stored["uids"]
        return {str(uid): str(uids[uid]) for uid in uids}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MaterializeError(
            f"{registry}, which says what Principal each account serves, cannot be read: {error}"
        ) from error


def _store(registry: Path, folder: int, uids: dict[str, str]) -> None:
    temporary = f".{registry.name}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, "uids": uids}, file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, registry.name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
