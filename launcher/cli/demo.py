"""`amux demo`: the main job on three real agents."""

from __future__ import annotations

from pathlib import Path

import click

from amux.launcher.demo.scene import run_demo
from amux.launcher.demo.table import table


@click.command("demo")
@click.option(
    "--agents",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of installed agents; without it those on PATH are taken.",
)
def command(agents: Path | None) -> None:
    """Remember in Codex, recall in Claude, correct from Pi, see it in a new Codex.

    Real agents, a real Hub, real files, in a throw-away home; only the models are scripted, and
    they decide from what the agents send them.
    """
    rows = run_demo(agents, lambda line: click.echo(line, err=True))
    click.echo(table(rows))
