"""`amux principal add|alias|list`: whose memory this Hub keeps."""

from __future__ import annotations

import json
import os

import click

from amux.hub.identity import open_identity
from amux.launcher.cli.refusal import open_local_home, refusals


@click.group()
def command() -> None:
    """Add and list Principals and their aliases."""


@command.command()
@click.argument("principal")
@click.option("--alias", "aliases", multiple=True, help="Another name, any text; may repeat.")
def add(principal: str, aliases: tuple[str, ...]) -> None:
    """Add PRINCIPAL, the identity that memory belongs to."""
    with refusals():
        open_identity(open_local_home(os.environ)).principals.add(principal, aliases)
    click.echo(f"Added {principal}.")


@command.command()
@click.argument("principal")
@click.argument("alias")
def alias(principal: str, alias: str) -> None:
    """Let ALIAS (a CLI name, a chat account) name PRINCIPAL as well."""
    with refusals():
        open_identity(open_local_home(os.environ)).principals.add_alias(principal, alias)
    click.echo(f"{alias} names {principal}.")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_principals(*, as_json: bool) -> None:
    """List every Principal with its aliases."""
    with refusals():
        known = open_identity(open_local_home(os.environ)).principals.current()
    found = sorted(known.by_id.values(), key=lambda principal: principal.id)
    if as_json:
        rows = [{"id": one.id, "aliases": list(one.aliases)} for one in found]
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for one in found:
        click.echo("\t".join((one.id, *one.aliases)))
