"""How a command for people ends when something is refused: one sentence, status 1."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from amux.hub.enrolment import remote_connection
from amux.hub.errors import HomeRefused, HubError
from amux.hub.home import open_home
from amux.launcher.errors import LaunchError
from amux.materializer.errors import MaterializeError
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from amux.hub.connection import Connection


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of ours, or of the file system, into a message on stderr and status 1."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(file_refusal(error)) from error
    except HubError as error:
        raise click.ClickException(error.message) from error
    except (LaunchError, MaterializeError, ProviderError) as error:
        raise click.ClickException(str(error)) from error


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"amux: warning: {text}", err=True)


def file_refusal(error: OSError) -> str:
    """Return in one sentence what the system refused."""
    where = f" ({error.filename})" if error.filename else ""
    return f"the system refused: {error.strerror or type(error).__name__}{where}"


def served_elsewhere(remote: Connection) -> str:
    """Return why a home that uses a remote Hub does nothing for one of its own."""
    return (
        f"this home uses the Hub at {remote.url}, and nothing here asks another; do this on that "
        "Hub's machine, or first: amux hub disconnect"
    )


def open_local_home(environ: Mapping[str, str]) -> Path:
    """Return AMUX_HOME, the home of this machine's own Hub; HomeRefused for one that is remote."""
    home = open_home(environ)
    remote = remote_connection(home)
    if remote is not None:
        raise HomeRefused(served_elsewhere(remote))
    return home
