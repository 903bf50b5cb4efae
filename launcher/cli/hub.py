"""`amux hub`: run, inspect and stop the Hub of AMUX_HOME, or use a remote one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import click

from amux.hub import config
from amux.hub.client import HubClient
from amux.hub.connection import Connection
from amux.hub.enrolment import connect as enrol
from amux.hub.enrolment import disconnect as leave
from amux.hub.enrolment import enrol_local, remote_connection
from amux.hub.errors import HomeRefused, HubError, Unavailable
from amux.hub.home import open_home, private_socket
from amux.hub.local import HubStatus, hub_status, stop_hub
from amux.hub.placement import SENTENCES, placed
from amux.hub.secret import redact, sole_credential
from amux.hub.unit import unit_name
from amux.hub.unixsocket import is_listened_at
from amux.launcher.cli.hubunit import command as install_unit
from amux.launcher.cli.refusal import file_refusal, refusals, served_elsewhere, warn

NOT_RUNNING: Final = 3
REFUSED_STATUS: Final = 78
"""The status of a Hub whose start has to be mended first."""


@click.group()
def command() -> None:
    """Serve, inspect and stop the Hub; connect to a remote one."""


command.add_command(install_unit)


@command.command()
def serve() -> None:
    """Serve in the foreground.

    Logs to stderr, until SIGTERM or Ctrl-C.
    """
    try:
        home = open_home(os.environ)
        remote = remote_connection(home)
        if remote is not None:
            raise HomeRefused(served_elsewhere(remote))
    except HubError as error:
        click.echo(f"amux: {error.message}", err=True)
        sys.exit(REFUSED_STATUS)
    except OSError as error:
        click.echo(f"amux: {file_refusal(error)}", err=True)
        sys.exit(REFUSED_STATUS)
    environ = {**os.environ, "AMUX_HOME": str(home)}
    os.execve(sys.executable, [sys.executable, "-P", "-m", "amux.hub.server"], environ)  # noqa: S606  # the Hub itself, no shell


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(ctx: click.Context, *, as_json: bool) -> None:
    """Say whether the Hub runs, with which settings.

    The exit status is 3 when it does not run, or a remote one does not answer.
    """
    with refusals():
        home = open_home(os.environ)
        remote = remote_connection(home)
        if remote is not None:
            ctx.exit(_remote_status(remote, as_json=as_json))
        found = hub_status(home)
    click.echo(json.dumps(found.as_json(), indent=1) if as_json else _status_text(found))
    if not found.running:
        ctx.exit(NOT_RUNNING)


@command.command()
def stop() -> None:
    """Stop the Hub; writes in flight finish first."""
    with refusals():
        home = open_home(os.environ)
        stopped = stop_hub(home)
    click.echo("The Hub has stopped." if stopped else "No Hub runs.")
    if is_listened_at(private_socket(home)):
        unit = f"{unit_name(home)}.socket"
        warn(f"a call starts it again, until you run: systemctl --user stop {unit}")


@command.command()
@click.argument("url")
@click.option(
    "--token-file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that holds the credential (- for stdin).",
    show_default=False,
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file of the authority that signed the Hub's certificate.",
)
def connect(url: str, token_file: Path, ca: Path | None) -> None:
    """Use the remote Hub at URL from now on.

    URL is https://HOST:PORT. The Hub is asked for its health first, with the credential.
    """
    token = sole_credential(_read(token_file))
    if token is None:
        raise click.ClickException(
            "what --token-file names is not one credential and nothing else; the Hub's operator "
            "makes one with: amux credential issue"
        )
    with refusals():
        home = open_home(os.environ)
        connection = Connection(url=url, token=token, ca_pem=None if ca is None else _read(ca))
        with HubClient(connection, seconds=10.0) as hub:
            health = hub.health()
        role = enrol(home, connection)
    click.echo(f"Connected as {role} to the Hub {health.version} at {url}; see: amux hub status")


@command.command()
def disconnect() -> None:
    """Forget the remote Hub and use this machine's own again."""
    with refusals():
        home = open_home(os.environ)
        left = leave(home)
        enrol_local(home)
    click.echo("Disconnected." if left else "This home uses no remote Hub.")


def _read(path: Path) -> str:
    """Read a small text file, or stdin for `-`."""
    try:
        if str(path) == "-":
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = redact(f"cannot read {path}: {type(error).__name__}")
        raise click.ClickException(message) from error


def _remote_status(connection: Connection, *, as_json: bool) -> int:
    """Print what the remote Hub says of itself; return the exit status."""
    try:
        with HubClient(connection, seconds=10.0) as hub:
            health = hub.health()
    except Unavailable as error:
        if as_json:
            fields = {"remote": connection.url, "running": False, "reason": error.message}
            click.echo(json.dumps(fields, indent=1))
        else:
            click.echo(f"The Hub at {connection.url} does not answer: {error.message}")
        return NOT_RUNNING
    fields = {
        "remote": connection.url,
        "version": health.version,
        "policy": health.policy,
        "enabled": health.enabled,
    }
    if as_json:
        click.echo(json.dumps(fields, indent=1))
    else:
        for name, value in fields.items():
            click.echo(f"{name:9} {value}")
    return 0


def _status_text(found: HubStatus) -> str:
    if found.holder is None:
        begin = "its socket unit starts it" if found.activated else "amux launch starts it"
        lines = [f"The Hub does not run; {begin}, or run: amux hub serve"]
    else:
        holder = found.holder
        lines = [
            f"The Hub {holder.version} runs as process {holder.pid}"
            + ("." if found.answers else ", but does not answer on its socket."),
            f"socket    {holder.socket}",
            f"launches  {holder.agent_socket}",
            f"started   {SENTENCES[placed(holder.placed)]}",
        ]
        if holder.listen:
            lines.append(f"tls       {holder.listen}")
    lines.append(f"log       {found.log}")
    for key, (running, configured) in found.settings().items():
        shown = config.show(configured)
        if running is not None and running != configured:
            shown = f"{config.show(running)}, after a restart {shown}"
        lines.append(f"{key:27} {shown}")
    if found.restart_needed:
        lines.append("Settings have changed: run amux hub stop; amux launch starts it again")
    return "\n".join(lines)
