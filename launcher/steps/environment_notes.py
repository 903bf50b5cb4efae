"""What a relocated home's environment does not hand on, or hands on in vain: people should know.

A proxy whose address holds a password is left out, and the agent then has no proxy; a CA file of
the caller's may be closed to the account, and the agent then trusts nothing that it signs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from amux.launcher.steps.environment import dropped_proxies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.launcher.steps.attempt import Attempt
    from amux.materializer.values import Identity

CERTIFICATES: Final = (
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)


def remarks(attempt: Attempt) -> tuple[str, ...]:
    """Return a sentence for each variable of a relocated home that will be missed."""
    target, request = attempt.target, attempt.request
    if target.identity is None and not attempt.record.private_home:
        return ()
    proxies = tuple(
        f"{name} holds a user's name or password and is not handed on; --env {name} lets it in"
        for name in dropped_proxies(request.environment, request.pass_names)
    )
    return (*proxies, *_certificates(target.environment, target.identity))


def _certificates(environment: Mapping[str, str], identity: Identity | None) -> tuple[str, ...]:
    named = {name: environment[name] for name in CERTIFICATES if environment.get(name)}
    if not named:
        return ()
    who = "your account" if identity is None else f"user {identity.user}"
    readable = _readable(tuple(dict.fromkeys(named.values())), identity)
    return tuple(
        f"{name} names {path}, which {who} cannot read"
        for name, path in named.items()
        if path not in readable
    )


def _readable(paths: tuple[str, ...], identity: Identity | None) -> frozenset[str]:
    """Return what can be read, as the target finds it."""
    if identity is None:
        return frozenset(path for path in paths if os.access(path, os.R_OK))
    # Imported here: few launches name such files.
    from amux.materializer import targetfiles  # noqa: PLC0415

    return targetfiles.readable(identity, paths)
