"""`amux sessions`: list, show, stop and prune the sessions of AMUX_HOME, whoever started them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from amux.launcher.cli.described import described, printable
from amux.launcher.cli.refusal import refusals, warn
from amux.launcher.errors import SessionRunning
from amux.launcher.host import this_host
from amux.launcher.process.run_processes import end_marked
from amux.launcher.recovery import reconcile, recover, settled
from amux.launcher.session.store import SessionStore, State

if TYPE_CHECKING:
    from amux.launcher.session.store import Listing, SessionRecord

STOP_DEADLINE: Final = 5.0
"""Seconds for killed processes to be gone, after the shim had its own time."""
UNLOCK_WAIT: Final = 10.0
"""Seconds for the run's supervisor to write down how the run ended."""
KEPT_DAYS: Final = 30


@click.group()
def command() -> None:
    """List, show, stop and prune sessions."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_sessions(*, as_json: bool) -> None:
    """List all sessions, newest first."""
    listing = _listing(_open())
    if as_json:
        damaged = [{"id": one.id, "reason": one.reason} for one in listing.damaged]
        records = [record.as_json() for record in listing.records]
        click.echo(json.dumps({"sessions": records, "damaged": damaged}, indent=1))
        return
    if listing.records:
        click.echo("\n".join(map(_line, listing.records)))
    for one in listing.damaged:
        click.echo(f"amux: damaged: {printable(one.reason)}", err=True)


@command.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(session: str, *, as_json: bool) -> None:
    """Show one session's record.

    The first characters of its id are enough, four or more.
    """
    with refusals():
        store = _open()
        record = store.load(store.find(session))
    if as_json:
        click.echo(json.dumps(record.as_json(), indent=1))
        return
    for line in described(record):
        click.echo(line)


@command.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(session: str, *, as_json: bool) -> None:
    """Look at a session's conversation: what it shows of memory.

    In its transcript, and in the answer of a live agent that a program talks to through amux.

    Status 1 where that contradicts what the session is said to be.
    """
    from amux.launcher.evidence.verify import verify as read_again  # noqa: PLC0415  # this command alone

    with refusals():
        host = this_host(os.environ)
        store = SessionStore(host.home)
        seen = read_again(store.load(store.find(session)), host, store)
    if as_json:
        click.echo(json.dumps({"items": [asdict(one) for one in seen]}, indent=1))
    for one in seen if not as_json else ():
        click.echo(f"{one.control} = {one.observed} ({one.source}, turn {one.turn})")
    wrong = [one.contradicts for one in seen if one.contradicts]
    for text in wrong:
        click.echo(f"amux: {text}", err=True)
    if wrong:
        sys.exit(1)


@command.command()
@click.argument("session")
def stop(session: str) -> None:
    """End a session's run and all that it started.

    TERM first, then KILL.
    """
    store = _open()
    with refusals():
        session = store.find(session)
        record = store.load(session)
        if store.copied(record):
            raise SessionRunning(f"session {session} runs in another home, which this one copies")
        if not store.live(session):
            if record.active:  # its end could not be written down
                (done,) = reconcile(store, also=(session,))
                record = done.record
            click.echo(f"session {session} does not run ({record.state})")
            return
        left = end_marked([record.marker], STOP_DEADLINE)
    if left:
        raise click.ClickException(f"{left} processes of session {session} could not be ended")
    with refusals(), store.locked(session, wait=UNLOCK_WAIT):
        click.echo(f"session {session} is stopped")


@command.command()
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=KEPT_DAYS,
    show_default=True,
    help="Days since the session's last change.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be forgotten.")
def prune(*, days: float, dry_run: bool) -> None:
    """Forget old sessions that have ended.

    They can't be resumed any more. Native conversations and memory stay as they are, and so do
    damaged records.
    """
    store = _open()
    limit = datetime.now(UTC) - timedelta(days=days)
    for record in _listing(store).records:
        if record.active or _changed(record) > limit:
            continue
        if not dry_run:
            try:
                store.remove(record.id)
            except SessionRunning:
                continue
        click.echo(f"{'would forget' if dry_run else 'forgot'} {record.id}")


def _open() -> SessionStore:
    with refusals():
        host = this_host(os.environ)
        recover(host, warn)
        return SessionStore(host.home)


def _listing(store: SessionStore) -> Listing:
    with refusals():
        return settled(store)


def _changed(record: SessionRecord) -> datetime:
    """Return when the record was last written; one that does not say so is never old."""
    try:
        return datetime.fromisoformat(record.updated).astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)


def _line(record: SessionRecord) -> str:
    how = record.state.value
    if record.state is State.ENDED and record.exit_signal is not None:
        how = f"signal {record.exit_signal}"
    elif record.state is State.ENDED and record.exit_code is not None:
        how = f"exit {record.exit_code}"
    if record.survivors:
        how += f", {record.survivors} left"
    memory = record.binding or "no memory"
    columns = (record.id, f"{record.created[:19]}Z", f"{record.provider:<10}", f"{how:<9}")
    return "  ".join(map(printable, (*columns, f"{memory:<24}", record.cwd)))
