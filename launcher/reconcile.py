"""End what a killed supervisor and a killed shim left behind, and say so in the session's record.

A session whose lock is held has a living supervisor or shim and is left alone: a shim whose
supervisor died ends its run by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from launcher.errors import SessionDamaged, SessionNotFound, SessionRunning
from launcher.processes import end_marked, find_marked
from launcher.sessions import SessionRecord, State, timestamp

if TYPE_CHECKING:
    from launcher.sessions import SessionStore

END_DEADLINE: Final = 5.0
"""Seconds for the processes of one run to be gone after KILL."""
CUT_OFF: Final = "the supervisor was killed; amux ended the run at its next start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """One run that was cut off: `record` as it is now, `ended` processes, `survivors` still there.

    What else belonged to the run (its folder, its credential) is for the caller to remove.
    """

    record: SessionRecord
    ended: int
    survivors: int


def reconcile(store: SessionStore) -> tuple[Reconciled, ...]:
    """End every run that lost its supervisor and its shim, and mark its session `ended`.

    Processes are chosen by the run's random marker alone. A damaged record is left as it is.
    """
    done: list[Reconciled] = []
    for session in store.unfinished():
        try:
            with store.locked(session, wait=0):
                record = store.load(session)
                if record.state in {State.STARTING, State.RUNNING}:
                    done.append(_reconcile(store, record))
        except (SessionRunning, SessionNotFound, SessionDamaged):
            continue
    return tuple(done)


def _reconcile(store: SessionStore, record: SessionRecord) -> Reconciled:
    found = find_marked([record.marker])[record.marker] if record.marker else []
    survivors = end_marked(record.marker, END_DEADLINE) if found else 0
    record = store.update(
        replace(record, state=State.ENDED, ended=timestamp(), failure=CUT_OFF, processes=())
    )
    return Reconciled(record=record, ended=len(found) - survivors, survivors=survivors)
