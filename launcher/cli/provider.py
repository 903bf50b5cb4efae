"""`amux provider list`: the agents that amux knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from amux.providers.registry import Registry

if TYPE_CHECKING:
    from amux.providers.registry import Listed


@click.group(name="provider")
def command() -> None:
    """List the agents that amux knows."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_providers(*, as_json: bool) -> None:
    """List every provider, with what it can do or why it can't be used."""
    rows = Registry().listing()
    if as_json:
        click.echo(json.dumps({"providers": [_json(row) for row in rows]}, indent=2))
        return
    for row in rows:
        click.echo(f"{row.name:<12} {_summary(row)}")
        for name, meaning in sorted(row.options.items()):
            click.echo(f"{'':<12} --option {name}: {meaning}")


def _summary(row: Listed) -> str:
    if row.capabilities is None:
        return f"unusable: {row.problem}"
    if row.capabilities.memory:
        return f"memory by {row.capabilities.tools.value} ({row.distribution})"
    missing = ", ".join(row.capabilities.missing)
    return f"no memory: lacks {missing} ({row.distribution})"


def _json(row: Listed) -> dict[str, Any]:
    known = row.capabilities
    return {
        "name": row.name,
        "distribution": row.distribution,
        "target": row.target,
        "usable": known is not None,
        "problem": row.problem or None,
        "memory": known.memory if known else None,
        "tools": known.tools.value if known else None,
        "modes": sorted(mode.value for mode in known.modes) if known else [],
        "options": dict(row.options),
        "missing": list(known.missing) if known else [],
    }
