"""How a credential is recognised in a text, so that its secret is in no error and no log."""

from __future__ import annotations

import re
from typing import Final

FORM: Final = re.compile(r"amux_(user|runtime|agent|admin)_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_IN_TEXT: Final = re.compile(
    r"(amux_(?:user|runtime|agent|admin)_[0-9A-Za-z]{1,32})_[A-Za-z0-9_-]+"
)
_BYTE_ORDER_MARK: Final = "\ufeff"


def redact(text: str) -> str:
    """Return the text with the secret of every credential in it taken out."""
    return _IN_TEXT.sub(r"\1_…", text)


def sole_credential(text: str) -> str | None:
    """Return the credential that is all of a text, but for blanks and a byte order mark."""
    found = FORM.fullmatch(text.removeprefix(_BYTE_ORDER_MARK).strip())
    return None if found is None else found[0]
