"""`amux system config get|set`: the settings of this home's Hub."""

from __future__ import annotations

import json
import os

import click

from amux.hub import config
from amux.hub.enrolment import remote_connection
from amux.hub.home import open_home
from amux.hub.local import hub_status
from amux.launcher.cli.refusal import refusals


@click.group()
def command() -> None:
    """Read and change the Hub's settings."""


@command.group("config")
def config_group() -> None:
    """Read and change the settings.

    They are kept in `config.toml`; a running Hub takes a change at its next start.
    """


@config_group.command("get")
@click.argument("key", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def get_setting(key: str | None, *, as_json: bool) -> None:
    """Print one setting as configured, or all of them."""
    with refusals():
        home = open_home(os.environ)
        values = config.load(home).values()
        if key is not None:
            config.check_key(key)
            values = {key: values[key]}
    if as_json:
        click.echo(json.dumps(values, indent=1))
    elif key is not None:
        click.echo(config.show(values[key]))
    else:
        for name, value in values.items():
            click.echo(f"{name} = {config.show(value)}")


@config_group.command("set")
@click.argument("key")
@click.argument("value")
def set_setting(key: str, value: str) -> None:
    """Set one setting, and say when the running Hub needs a restart for it."""
    with refusals():
        home = open_home(os.environ)
        change = config.set_setting(home, key, value)
        found = hub_status(home)
        remote = remote_connection(home)
    click.echo(f"{change.key} = {config.show(change.after)}")
    if remote is not None:
        click.echo(
            f"This home uses the Hub at {remote.url}; that one has its own settings.", err=True
        )
    elif found.holder is not None and found.holder.settings.get(key) != change.after:
        click.echo(
            "The running Hub keeps the value that it started with. Restart it: "
            "amux hub stop, then amux launch starts it again (or amux hub serve).",
            err=True,
        )
