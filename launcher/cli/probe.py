"""`amux probe AGENT`: show on a real agent that its launch does what it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amux.launcher.cli.refusal import refusals
from amux.launcher.probe.acceptance import probe_turns
from amux.launcher.probe.codex import probe_codex

if TYPE_CHECKING:
    from amux.launcher.probe.findings import ProbeReport


@click.command(name="probe")
@click.argument("agent")
@click.option(
    "--executable",
    "--codex",
    "executable",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The agent's command; without it the one on PATH.",
)
@click.option("--turns", is_flag=True, help="For Codex: take model turns too, as for the others.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(agent: str, executable: Path | None, *, turns: bool, as_json: bool) -> None:
    """Show on a real AGENT that its launch does what it promises.

    In a throw-away home, without an account and without tokens. Codex is probed offline, without
    any model turn, unless --turns is given; the others talk to a scripted model on loopback. The
    status is 1 where something is not as it must be.
    """
    with refusals():
        offline = agent == "codex" and not turns
        report = probe_codex(executable) if offline else probe_turns(agent, executable)
    _tell(report, as_json=as_json)


def _tell(report: ProbeReport, *, as_json: bool) -> None:
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else report.as_text())
    sys.exit(0 if report.passed else 1)
