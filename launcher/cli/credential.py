"""`amux credential issue|list|revoke`: who may call this Hub."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Final

import click

from amux.hub.errors import IdentityRefused
from amux.hub.identity import Registry, open_identity
from amux.launcher.cli.refusal import open_local_home, refusals

if TYPE_CHECKING:
    from amux.hub.identity import Credential, Kind

_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}


@click.group()
def command() -> None:
    """Issue, list and revoke credentials of the Hub."""


@command.command()
@click.option(
    "--kind", type=click.Choice(["user", "runtime", "admin"]), default="user", show_default=True
)
@click.option(
    "--principal",
    "names",
    multiple=True,
    help="Id or alias. A user has one; a runtime opens launches for these, the first by default.",
)
@click.option("--any-principal", is_flag=True, help="A runtime opens launches for any Principal.")
@click.option("--label", default="", help="A note for the listing.")
@click.option("--expires", help="End after this time: 90m, 12h or 30d.  [default: never]")
def issue(  # click passes each option
    kind: Kind,
    names: tuple[str, ...],
    *,
    any_principal: bool,
    label: str,
    expires: str | None,
) -> None:
    """Make a credential and print it, this once, on stdout."""
    with refusals():
        registry = open_identity(open_local_home(os.environ))
        principals = tuple(_resolve(registry, name) for name in names)
        _check(kind, principals, any_principal=any_principal)
        token = registry.credentials.issue(
            kind,
            principal=principals[0] if principals else None,
            allowed=None if any_principal else (principals if kind == "runtime" else ()),
            label=label,
            expires=None if expires is None else int(time.time()) + _seconds(expires),
        )
    click.echo(token.text)
    click.echo(f"Credential {token.id}: shown this once; keep it in a file of mode 0600.", err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_credentials(*, as_json: bool) -> None:
    """List every credential without its secret."""
    with refusals():
        known = open_identity(open_local_home(os.environ)).credentials.current()
    found = sorted(known.values(), key=lambda credential: (credential.created, credential.id))
    if as_json:
        click.echo(json.dumps([_row(one) for one in found], indent=1, ensure_ascii=False))
        return
    for one in found:
        row = _row(one)
        allowed = "any Principal" if row["allowed"] is None else ",".join(one.allowed or ())
        ends = "" if one.expires is None else f"until {_when(one.expires)}"
        columns = (one.id, one.kind, one.principal or "-", allowed, one.label, ends)
        click.echo("\t".join(columns).rstrip())


@command.command()
@click.argument("credential")
def revoke(credential: str) -> None:
    """End a credential and its launches at once.

    CREDENTIAL is the id that `amux credential list` shows.
    """
    with refusals():
        open_identity(open_local_home(os.environ)).credentials.revoke(credential)
    click.echo(f"Revoked {credential}.")


def _resolve(registry: Registry, name: str) -> str:
    found = registry.principals.current().resolve(name)
    if found is None:
        raise IdentityRefused(
            f"no Principal has the id or alias {name!r}; add it with: amux principal add"
        )
    return found.id


def _check(kind: Kind, principals: tuple[str, ...], *, any_principal: bool) -> None:
    """Refuse options that say two things."""
    if kind == "user" and len(principals) != 1:
        raise IdentityRefused("a user credential needs exactly one --principal")
    if kind == "admin" and principals:
        raise IdentityRefused("an admin credential has no Principal and no memory")
    if kind != "runtime" and any_principal:
        raise IdentityRefused("--any-principal goes with --kind runtime")
    if kind == "runtime" and not principals and not any_principal:
        raise IdentityRefused("a runtime credential needs --principal, or --any-principal")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if found is None:
        raise IdentityRefused(f"{text!r} is no time like 90m, 12h or 30d")
    return int(found[1]) * _UNITS[found[2]]


def _row(credential: Credential) -> dict[str, object]:
    return {
        "id": credential.id,
        "kind": credential.kind,
        "principal": credential.principal,
        "allowed": None if credential.allowed is None else list(credential.allowed),
        "label": credential.label,
        "created": credential.created,
        "expires": credential.expires,
    }


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
