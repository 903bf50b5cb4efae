"""End what a killed supervisor and a killed shim left behind, and say so in the session's record.

A session whose lock is held has a living supervisor or shim and is left alone: a shim whose
supervisor died ends its run by itself.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HubError
from amux.launcher.errors import (
    BadRequest,
    SessionDamaged,
    SessionNotFound,
    SessionRunning,
    host_errors,
)
from amux.launcher.memory.hub import hub_client
from amux.launcher.process.run_processes import end_marked, find_marked
from amux.launcher.session.store import Listing, SessionRecord, SessionStore, State, timestamp
from amux.materializer import removal, runs
from amux.materializer.errors import MaterializeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amux.launcher.host import Host
    from amux.launcher.session.store import SessionLock

END_DEADLINE: Final = 5.0
"""Seconds for the processes of one run to be gone after KILL."""
CUT_OFF: Final = (
    "how the run ended was not written down: its supervisor was killed, or the disk was full; amux "
    "settled it at its next start"
)
COPIED: Final = "the record came with a copy of another home, where its run belongs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """One run that was cut off: its `record` now, and how many processes `ended` or did not."""

    record: SessionRecord
    ended: int
    survivors: int


def recover(host: Host, warn: Callable[[str], object] = removal.ignore) -> tuple[Reconciled, ...]:
    """Reconcile the sessions of a home, and remove their folders and end their credentials.

    `warn` hears a sentence about what had to be left of a folder; the record of its session says
    so too. A Hub that is away forgets a credential when its lease is over.
    """
    with host_errors("the sessions cannot be reached"):
        store = SessionStore(host.home)
    done: tuple[Reconciled, ...] = ()
    with contextlib.suppress(OSError):  # of a disk that is full: the next start tries again
        done = reconcile(store)
    left: dict[str, str] = {}
    with contextlib.suppress(MaterializeError, OSError):
        # Also what was cut off before a record named it, or half-way through its removal.
        runs.sweep(host.runs, _live_runs(store), lambda run, said: left.update({str(run): said}))
    for said in left.values():
        warn(said)
    done = tuple(_warned(store, one, left.get(one.record.run)) for one in done)
    bound = [run.record.marker for run in done if run.record.bound]
    if bound:
        _end_leases(host, bound)
    return done


def _warned(store: SessionStore, one: Reconciled, sentence: str | None) -> Reconciled:
    if sentence is None:
        return one
    record = replace(one.record, warnings=(*one.record.warnings, sentence))
    return replace(one, record=store.update(record))


def _live_runs(store: SessionStore) -> list[Path]:
    """Return the folders of runs that a shim is still ending for a dead supervisor."""
    found = []
    for session in store.unfinished():
        with contextlib.suppress(SessionNotFound, SessionDamaged):
            if store.live(session):
                found.append(Path(store.load(session).run))
    return found


def _end_leases(host: Host, launches: Iterable[str]) -> None:
    with contextlib.suppress(HubError), hub_client(host) as hub:
        for launch in launches:
            hub.end_launch(launch)


def settled(store: SessionStore) -> Listing:
    """Return the records of a store as the kernel knows them: none runs that nothing runs of.

    A record whose end could not be written is settled now; where it still cannot, it stays.
    """
    listing = store.list()
    untold = store.untold(listing.records)
    if not untold:
        return listing
    with contextlib.suppress(OSError):
        reconcile(store, also=untold)
    return store.list()


def reconcile(store: SessionStore, *, also: tuple[str, ...] = ()) -> tuple[Reconciled, ...]:
    """End every run that lost its supervisor and its shim, and mark its session `ended`.

    Sessions with a lock file are looked at, and those that `also` names.

    Processes are chosen by the run's random marker alone. A damaged record is left as it is. A
    run that a copied record names belongs to the home that was copied, and goes on.
    """
    with contextlib.ExitStack() as locks:
        held = dict(_cut_off(store, locks, also))
        cut_off = [record for record, _ in held.values()]
        before = find_marked([record.marker for record in cut_off])
        if cut_off:
            end_marked([record.marker for record in cut_off], END_DEADLINE)
        after = find_marked([record.marker for record in cut_off if before[record.marker]])
        for record in cut_off:
            held[record.id][1].unsettled = bool(after.get(record.marker))
        return tuple(
            Reconciled(
                record=_settle(store, record, CUT_OFF, len(after.get(record.marker, ()))),
                ended=len(before[record.marker]) - len(after.get(record.marker, ())),
                survivors=len(after.get(record.marker, ())),
            )
            for record in cut_off
        )


def _cut_off(
    store: SessionStore, locks: contextlib.ExitStack, also: tuple[str, ...]
) -> Iterator[tuple[str, tuple[SessionRecord, SessionLock]]]:
    """Find the sessions whose run nobody holds any more, and hold them."""
    for session in (*store.unfinished(), *also):
        with contextlib.suppress(SessionRunning, SessionNotFound, SessionDamaged, BadRequest):
            lock = locks.enter_context(store.locked(session, wait=0))
            record = store.load(session)
            if not record.active and not record.survivors:
                continue
            if store.copied(record):
                _settle(store, record, COPIED, 0)
            else:
                yield session, (record, lock)


def _settle(
    store: SessionStore, record: SessionRecord, failure: str, survivors: int
) -> SessionRecord:
    """Write down that the run is over, and how many of its processes could not be ended."""
    if not record.active:
        return store.update(replace(record, survivors=survivors))
    return store.update(
        replace(
            record,
            state=State.ENDED,
            ended=timestamp(),
            failure=failure,
            survivors=survivors,
            processes=(),
        )
    )
