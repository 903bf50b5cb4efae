"""`amux probe AGENT`: show on a real agent that its launch does what it promises."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.agents import find_agent
from launcher.cli.refusal import refusals
from launcher.probe.codex import probe_codex

if TYPE_CHECKING:
    from launcher.probe.findings import ProbeReport


@click.group(name="probe")
def command() -> None:
    """Show on a real agent that its launch does what it promises.

    In a throw-away home, without an account and without tokens. The status is 1 where something
    is not as it must be.
    """


@command.command(name="codex")
@click.option(
    "--codex",
    "executable",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The codex command; without it the one on PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def codex(executable: Path | None, *, as_json: bool) -> None:
    """Probe Codex offline: every control of a bound launch, without any model turn."""
    with refusals():
        found = find_agent(
            "codex", search_path=os.environ.get("PATH", os.defpath), given=executable
        )
        report = probe_codex(found)
    _tell(report, as_json=as_json)


def _tell(report: ProbeReport, *, as_json: bool) -> None:
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else report.as_text())
    sys.exit(0 if report.passed else 1)
