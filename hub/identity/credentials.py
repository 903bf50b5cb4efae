"""Enrolled credentials of the kinds user, runtime and admin: `identity/credentials.json`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amux.hub.errors import IdentityRefused
from amux.hub.identity import token as tokens
from amux.hub.identity.records import (
    Record,
    RecordFile,
    number,
    optional_number,
    optional_text,
    text,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amux.hub.identity.token import Kind, Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One enrolled credential without its secret.

    `principal` is its own Principal (a runtime's: the one of launches that name none).
    `allowed` are the Principals for which a runtime may open launches; None means any.
    """

    id: str
    kind: Kind
    digest: str = field(repr=False)
    principal: str | None = None
    allowed: tuple[str, ...] | None = ()
    label: str = ""
    created: int = 0
    expires: int | None = None

    def may_act_for(self, principal: str | None) -> bool:
        """Say whether this runtime may open launches for the Principal, or for none."""
        return self.allowed is None or principal is None or principal in self.allowed


class CredentialFile:
    """The file of credentials: read when it changed, written under the identity lock."""

    def __init__(self, folder: Path) -> None:
        self._file = RecordFile(folder / "credentials.json", "credentials", _credential)

    def current(self) -> Mapping[str, Credential]:
        """Return what the file says now. Raises IdentityRefused when it is damaged."""
        return self._file.current()

    def issue(  # noqa: PLR0913  # each is one column of the record
        self,
        kind: Kind,
        *,
        principal: str | None = None,
        allowed: tuple[str, ...] | None = (),
        label: str = "",
        expires: int | None = None,
        replacing_label: bool = False,
    ) -> Token:
        """Make a credential and return it, the only time that its secret is seen.

        `replacing_label` revokes those of the same kind and label in the same step.
        """
        if kind == "agent":
            raise IdentityRefused("an agent credential comes from a launch, not from an operator")
        if kind == "user" and principal is None:
            raise IdentityRefused("a user credential needs a Principal")
        if kind == "admin" and principal is not None:
            raise IdentityRefused("an admin credential has no Principal and no memory")
        made = tokens.make(kind)
        record: Record = {
            "kind": kind,
            "sha256": made.digest,
            "principal": principal,
            "allowed": None if allowed is None else list(allowed),
            "label": label,
            "created": int(time.time()),
            "expires": expires,
        }
        with self._file.writer() as records:
            if replacing_label:
                for key, old in list(records.items()):
                    if old.get("kind") == kind and old.get("label") == label:
                        records.drop(key)
            records.put(made.id, record)
        return made

    def revoke(self, credential_id: str) -> None:
        """Delete a credential for good. Raises IdentityRefused for an unknown id."""
        with self._file.writer() as records:
            if not records.drop(credential_id):
                raise IdentityRefused(
                    f"there is no credential {credential_id!r}; see: amux credential list"
                )


def _credential(key: str, record: Record) -> Credential:
    kind = text(record, "kind")
    if kind not in tokens.KINDS:
        raise IdentityRefused(f"credential {key!r} is of no known kind")
    return Credential(
        id=key,
        kind=next(known for known in tokens.KINDS if known == kind),
        digest=text(record, "sha256"),
        principal=optional_text(record, "principal"),
        allowed=None if record.get("allowed") is None else texts(record, "allowed"),
        label=text(record, "label"),
        created=number(record, "created"),
        expires=optional_number(record, "expires"),
    )
