"""What a credential looks like: `amux_<kind>_<id>_<secret>`, and how it is kept and compared."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from amux.hub.secret import FORM

Kind: TypeAlias = Literal["user", "runtime", "agent", "admin"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SECRET_BYTES: Final = 32
_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Token:
    """One credential in clear; its secret never appears in `repr`."""

    kind: Kind
    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """Return the form that a caller sends."""
        return f"amux_{self.kind}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """Return what is stored: the secret is 256 random bits, so one SHA-256 is enough."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def make(kind: Kind) -> Token:
    """Return a new random credential of this kind."""
    return Token(kind, secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(SECRET_BYTES))


def parse(text: str) -> Token | None:
    """Return the credential in its parts, or None for any other text."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    for kind in KINDS:
        if kind == found[1]:
            return Token(kind, found[2], found[3])
    return None


def matches(token: Token, digest: str) -> bool:
    """Say whether the credential has this stored digest, in constant time."""
    return hmac.compare_digest(token.digest, digest)
