"""How a command for people ends when something is refused: one sentence, status 1."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from hub.errors import HubError
from launcher.errors import LaunchError
from materializer.errors import MaterializeError
from providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of ours into a message on stderr and exit status 1."""
    try:
        yield
    except HubError as error:
        raise click.ClickException(error.message) from error
    except (LaunchError, MaterializeError, ProviderError) as error:
        raise click.ClickException(str(error)) from error
