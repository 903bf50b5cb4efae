"""The three files of identity together, and authentication against them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub.errors import IdentityRefused, StorageFailed, Unauthenticated
from amux.hub.home import open_private_folder
from amux.hub.identity import token as tokens
from amux.hub.identity.credentials import CredentialFile
from amux.hub.identity.launches import LaunchBook
from amux.hub.identity.principals import PrincipalFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.hub.identity.credentials import Credential
    from amux.hub.identity.launches import Launch
    from amux.hub.identity.token import Kind, Token

_NO_DIGEST: Final = "0" * 64
_UNKNOWN: Final = (
    "the credential is missing, wrong, expired or revoked; "
    "start a new run, or enrol again with: amux hub connect"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated actor: its kind, credential id, and what the credential says."""

    kind: Kind
    credential_id: str
    principal: str | None
    credential: Credential | None = None
    launch: Launch | None = None


class Registry:
    """Know every Principal and credential of one Hub."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        awake: Callable[[], float] = time.monotonic,
    ) -> None:
        self.principals = PrincipalFile(folder)
        self.credentials = CredentialFile(folder)
        self.launches = LaunchBook(folder / "launches", wall=clock, awake=awake)
        self._clock = clock

    def authenticate(self, text: str | None) -> Caller:
        """Return who sends this credential. Raises Unauthenticated, and StorageFailed."""
        token = tokens.parse(text) if text is not None else None
        if token is None:
            raise Unauthenticated(_UNKNOWN)
        try:
            caller = self._launched(token) if token.kind == "agent" else self._enrolled(token)
        except IdentityRefused as error:
            raise StorageFailed("the Hub cannot read its identity files; see its log") from error
        if caller is None:
            raise Unauthenticated(_UNKNOWN)
        return caller

    def _enrolled(self, token: Token) -> Caller | None:
        credential = self.credentials.current().get(token.id)
        good = tokens.matches(token, _NO_DIGEST if credential is None else credential.digest)
        if credential is None or not good or credential.kind != token.kind:
            return None
        if not self._valid(credential):
            return None
        return Caller(
            kind=credential.kind,
            credential_id=credential.id,
            principal=credential.principal,
            credential=credential,
        )

    def _launched(self, token: Token) -> Caller | None:
        """Find the lease; it is worth nothing once its runtime lost the right to open it."""
        launch = self.launches.by_credential(token.id)
        good = tokens.matches(token, _NO_DIGEST if launch is None else launch.digest)
        if launch is None or not good or self.launches.over(launch):
            return None
        runtime = self.credentials.current().get(launch.runtime)
        if runtime is None or runtime.kind != "runtime" or not self._valid(runtime):
            return None
        if not runtime.may_act_for(launch.principal):
            return None
        return Caller(
            kind="agent", credential_id=token.id, principal=launch.principal, launch=launch
        )

    def _valid(self, credential: Credential) -> bool:
        return credential.expires is None or credential.expires > self._clock()


def open_identity(
    home: Path,
    *,
    clock: Callable[[], float] = time.time,
    awake: Callable[[], float] = time.monotonic,
) -> Registry:
    """Open `<home>/identity`, made when missing. Raises HomeRefused.

    `clock` is Unix time, `awake` the clock of leases.
    """
    return Registry(open_private_folder(home / "identity"), clock=clock, awake=awake)
