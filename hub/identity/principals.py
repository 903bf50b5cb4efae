"""Principals and their aliases: `identity/principals.json`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amux.hub.errors import IdentityRefused
from amux.hub.identity.records import Record, RecordFile, number, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_ALIAS_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Principal:
    """One person or service that memory can belong to."""

    id: str
    aliases: tuple[str, ...] = ()
    created: int = 0


@dataclass(frozen=True, slots=True)
class Principals:
    """All Principals of a Hub at one moment."""

    by_id: Mapping[str, Principal] = field(default_factory=dict)
    by_alias: Mapping[str, str] = field(default_factory=dict)

    def resolve(self, name: str) -> Principal | None:
        """Return the Principal whose id, or else whose alias, is `name`."""
        found = self.by_id.get(name)
        if found is None and name in self.by_alias:
            found = self.by_id.get(self.by_alias[name])
        return found


def is_principal_id(text: str) -> bool:
    """Say whether the text has the form of a Principal's id."""
    return _ID.fullmatch(text) is not None


class PrincipalFile:
    """The file of Principals: read when it changed, written under the identity lock."""

    def __init__(self, folder: Path) -> None:
        self._file = RecordFile(folder / "principals.json", "principals", _principal)
        self._known = Principals()

    def current(self) -> Principals:
        """Return what the file says now. Raises IdentityRefused when it is damaged."""
        by_id = self._file.current()
        known = self._known
        if known.by_id is not by_id:
            aliases = {name: one.id for one in by_id.values() for name in one.aliases}
            known = self._known = Principals(by_id, aliases)
        return known

    def add(self, principal_id: str, aliases: tuple[str, ...] = ()) -> Principal:
        """Add a Principal. Raises IdentityRefused for a bad or taken id or alias."""
        if not is_principal_id(principal_id):
            raise IdentityRefused(
                f"{principal_id!r} is not a Principal id: letters, digits and . _ @ + - only, "
                "at most 128, beginning with a letter or digit"
            )
        with self._file.writer() as records:
            known = self.current()
            if known.resolve(principal_id) is not None:
                raise IdentityRefused(f"{principal_id!r} is already the id or alias of a Principal")
            for alias in aliases:
                _check_alias(known, alias)
            principal = Principal(principal_id, tuple(dict.fromkeys(aliases)), int(time.time()))
            records.put(principal_id, _record(principal))
        return principal

    def add_alias(self, principal_id: str, alias: str) -> Principal:
        """Give a Principal one more name. Raises IdentityRefused for a bad or taken one."""
        with self._file.writer() as records:
            known = self.current()
            principal = known.by_id.get(principal_id)
            if principal is None:
                raise IdentityRefused(
                    f"there is no Principal {principal_id!r}; see: amux principal list"
                )
            if alias not in principal.aliases:
                _check_alias(known, alias)
                aliases = (*principal.aliases, alias)
                principal = Principal(principal_id, aliases, principal.created)
                records.put(principal_id, _record(principal))
        return principal


def _check_alias(known: Principals, alias: str) -> None:
    if not alias or not alias.isprintable() or len(alias.encode()) > _ALIAS_BYTES:
        raise IdentityRefused(f"{alias!r} is not an alias: 1 to {_ALIAS_BYTES} bytes, printable")
    holder = known.resolve(alias)
    if holder is not None:
        raise IdentityRefused(f"{alias!r} already names the Principal {holder.id!r}")


def _record(principal: Principal) -> Record:
    return {"aliases": list(principal.aliases), "created": principal.created}


def _principal(key: str, record: Record) -> Principal | None:
    if not is_principal_id(key):
        return None
    return Principal(key, texts(record, "aliases"), number(record, "created"))
