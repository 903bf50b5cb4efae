"""What keeps one Principal's launch from another's files, beyond what the Hub refuses.

An isolated launch runs as an account that serves one Principal only. Everything that lies in
that account's reach is looked at as that account, never as the service: what it could not read
or run itself, the service does not read or run for it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from launcher import facts
from launcher.errors import AgentFailed, AgentNotFound, BadRequest, IsolationRefused
from materializer import provision, tenancy, trial
from providers.base import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.binding import Lease
    from launcher.host import Host
    from launcher.request import Provision
    from materializer.values import Identity

ACCOUNTS: Final = "accounts.json"
VERSION_SECONDS: Final = 20.0
PRINCIPAL: Final = "principal:"
NO_HOME: Final = "/nonexistent"


def claim_account(identity: Identity | None, lease: Lease, host: Host) -> None:
    """Keep that the account serves this Principal; raises UidTaken if it serves another.

    Under policy `none` everybody's memory is one, and so may accounts be.
    """
    if identity is not None and lease.binding.startswith(PRINCIPAL):
        tenancy.claim(host.home / ACCOUNTS, identity, lease.binding.removeprefix(PRINCIPAL))


def check_reach(lease: Lease, own_binding: Callable[[], str | None]) -> None:
    """Refuse another Principal's memory to an agent that can read AMUX_HOME.

    For launches of the service's own account in its own home. `own_binding` asks the Hub which
    binding the caller itself has.
    """
    if lease.binding.startswith(PRINCIPAL) and own_binding() != lease.binding:
        raise IsolationRefused(
            f"an agent of this account can read every Principal's memory, so it may only have its "
            f"own, not {lease.binding}: add --user NAME, or --private-home DIR (weak isolation)"
        )


def furnish(
    identity: Identity | None,
    home: str,
    *,
    private: bool,
    folders: tuple[str, ...],
    copies: tuple[Provision, ...],
) -> None:
    """Make what the agent needs in a home that is not the caller's own; raises NotProvided.

    Raises BadRequest for files to provide where the home is the caller's own.
    """
    if identity is None and not private:
        if copies:
            raise BadRequest("--provide is for --user and --private-home: this home is your own")
        return
    if private:
        Path(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = tuple(provision.Copy(source=one.source, target=one.target) for one in copies)
    provision.provide(identity, home, folders=folders, copies=wanted)


def read_facts(paths: tuple[str, ...], identity: Identity | None) -> Facts:
    """Read what a provider asked about, as the target."""
    if identity is None:
        return facts.read_facts(paths)
    return Facts(provision.read(identity, paths, limit=facts.MAX_FACT_BYTES))


def ask_version(
    argv: tuple[str, ...], *, identity: Identity | None, environment: Mapping[str, str]
) -> str:
    """Run `--version` as the target, in a home that does not exist, so that nothing is written.

    Raises AgentNotFound where the target cannot run it, AgentFailed where it does not answer.
    """
    clean = {"HOME": NO_HOME, "PATH": environment.get("PATH", os.defpath)}
    said = f"`{' '.join(argv)}`"
    if identity is not None:
        outcome = trial.run(argv, identity=identity, environment=clean, deadline=VERSION_SECONDS)
        if outcome.status != 0:
            hint = _closed_folder(argv[:-1], identity)
            raise AgentNotFound(
                f"{identity.user} cannot run {said}: {outcome.reason}{hint}; install the agent "
                "where every user can run it"
            )
        return (outcome.stdout + outcome.stderr).decode(errors="replace")
    try:
        done = subprocess.run(
            argv,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentFailed(f"{said} did not answer: {error}") from error
    if done.returncode != 0:
        raise AgentFailed(f"{said} ended with {done.returncode}", stderr=done.stderr[-2000:])
    return done.stdout + done.stderr


def _closed_folder(files: tuple[str, ...], identity: Identity) -> str:
    """Name the first folder on the way to the agent that is closed to the target."""
    for file in files:
        real = Path(os.path.realpath(file))
        for folder in reversed(real.parents):
            found = folder.stat()
            bit = 0o100 if found.st_uid == identity.uid else 0o001
            if found.st_gid in identity.groups and found.st_uid != identity.uid:
                bit = 0o010
            if not found.st_mode & bit:
                return f" ({folder} is closed to {identity.user})"
    return ""
