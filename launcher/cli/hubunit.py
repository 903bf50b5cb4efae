"""`amux hub install-unit`: let the account's systemd listen for the Hub and start it."""

from __future__ import annotations

import os
import sys

import click

from amux.hub.unit import install, plan_units, uninstall
from amux.launcher.cli.refusal import open_local_home, refusals


@click.command("install-unit")
@click.option("--print", "only_print", is_flag=True, help="Show the units and write nothing.")
@click.option("--remove", is_flag=True, help="Remove the units again.")
def command(*, only_print: bool, remove: bool) -> None:
    """Write a systemd user unit for the Hub.

    systemd listens at this home's hub.sock, and starts the Hub at the first call.
    """
    if only_print and remove:
        raise click.UsageError("--print and --remove exclude each other")
    with refusals():
        units = plan_units(open_local_home(os.environ), os.environ, python=sys.executable)
        name = units.socket.stem
        if only_print:
            for path, text in units.files():
                click.echo(f"# {path}\n{text}")
        elif remove:
            if uninstall(units):
                click.echo(f"Removed {name}.socket and {name}.service. Next run:")
                click.echo("  systemctl --user daemon-reload")
            else:
                click.echo("This home has no units.")
        else:
            install(units)
            click.echo(f"Wrote {units.socket}\nand   {units.service}\nNext run:")
            click.echo("  amux hub stop")
            click.echo("  systemctl --user daemon-reload")
            click.echo(f"  systemctl --user enable --now {name}.socket")
            click.echo("and, for a Hub that outlives your last login:\n  loginctl enable-linger")
