"""Forms that no single vendor owns, and our own credentials."""

from __future__ import annotations

from typing import Final

from amux.hub.guard.rules import Rule, secret

RULES: Final[tuple[Rule, ...]] = (
    secret(
        "jwt",
        r"ey[A-Za-z0-9_-]{16,1024}\.ey[A-Za-z0-9/_-]{16,4096}\.(?:[A-Za-z0-9_-]{16,1024})?",
        hints=(".ey",),
        source="RFC 7519",
        positive=("eyJ<33 urlsafe>.eyJ<60 urlsafe>.<43 urlsafe>",),
        negative=("a JWT begins with eyJ", "eyJhbGciOiJub25lIn0.payload.signature"),
    ),
    secret(
        "age-secret-key",
        r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
        hints=("AGE-SECRET-KEY-1",),
        source="age, secret key format",
        positive=("AGE-SECRET-KEY-1<58 upper>",),
        negative=("AGE-SECRET-KEY-1...",),
    ),
    secret(
        "private-key-block",
        # Followed by the key itself, behind a line's end, real or written as an escape.
        r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:\\[nr]|\s){0,8}(?:[A-Za-z0-9+/=]{16}|Proc-Type|Version:|Comment:|\Z)",
        word=False,
        hints=("PRIVATE KEY",),
        source="RFC 7468, RFC 9580, OpenSSH PROTOCOL.key",
        positive=(
            "-----BEGIN PRIVATE KEY-----\nMIIE<60 base64>\n",
            "-----BEGIN EC PRIVATE KEY-----\n  MHcC<60 base64>\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl<60 base64>\n",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQdG<60 base64>\n",
            '"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE<60 base64>"',
        ),
        negative=(
            "a file that begins with `-----BEGIN PRIVATE KEY-----` is never committed",
            "-----BEGIN CERTIFICATE-----\nMIIE<60 base64>\n",
            "-----BEGIN PUBLIC KEY-----\nMIIE<60 base64>\n",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        ),
    ),
    secret(
        "putty-private-key",
        r"PuTTY-User-Key-File-[23]: [a-z]",
        word=False,
        hints=("PuTTY-User-Key-File-",),
        source="PuTTY, appendix C: PPK file format",
        positive=("PuTTY-User-Key-File-3: ssh-ed25519",),
        negative=("PuTTY-User-Key-File-N is its first line",),
    ),
    secret(
        "amux-token",
        r"amux_(?:user|runtime|agent|admin)_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{32,64}",
        hints=("amux_",),
        source="amux, its own credentials",
        positive=("amux_agent_<12 hex>_<43 urlsafe>",),
        negative=("amux_agent_ID_SECRET",),
    ),
)
