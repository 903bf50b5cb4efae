"""How a command for people ends when the Hub's side refuses: one sentence, status 1."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from hub.errors import HubError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of the Hub into a message on stderr and exit status 1."""
    try:
        yield
    except HubError as error:
        raise click.ClickException(error.message) from error
