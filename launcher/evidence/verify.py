"""Look at a session's conversation on demand, whoever ran it: what it shows of memory and protocol.

Its transcript, and for a live run whose channel is amux's the agent's own answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amux.launcher.errors import BadRequest, SessionRunning
from amux.launcher.evidence import transcript
from amux.launcher.evidence.query_socket import ask_at
from amux.launcher.provider_call import held
from amux.launcher.steps.record import write_seen
from amux.providers.base import TranscriptPart

if TYPE_CHECKING:
    from amux.launcher.host import Host
    from amux.launcher.session.store import SessionRecord, SessionStore, TranscriptMark
    from amux.materializer.values import Identity
    from amux.providers.base import Sighting


def verify(record: SessionRecord, host: Host, sessions: SessionStore) -> tuple[Sighting, ...]:
    """Return what the whole transcript shows, and what the agent says where it can be asked.

    It is kept in the record of a session that ended; a live run writes its own. Raises BadRequest
    where there is nothing to look at, ProviderError and MaterializeError.
    """
    if not record.bound:
        raise BadRequest(f"session {record.id} has no memory, so amux promises nothing about it")
    alive = bool(record.run) and sessions.live(record.id) and not sessions.copied(record)
    answered = ask_at(Path(record.run)) if alive else ()
    mark = sessions.load(record.id).transcript
    if mark is None:
        if answered:
            return answered
        raise BadRequest(
            f"session {record.id} has no transcript that amux knows: it had no turn yet, or "
            f"{record.provider} keeps none"
        )
    seen = _read(record, mark, host)
    if not (seen or answered):
        raise BadRequest(f"{mark.path} cannot be read, or shows nothing of memory and protocol")
    _keep(record, sessions, seen)
    return (*seen, *answered)


def _read(record: SessionRecord, mark: TranscriptMark, host: Host) -> tuple[Sighting, ...]:
    """Return what the conversation's files show."""
    provider = host.providers.load(record.provider)
    identity = _identity(record)
    paths = (mark.path, *transcript.newer(mark.beside, identity, since=0))
    seen: dict[tuple[str, str], Sighting] = {}
    for path in dict.fromkeys(paths):
        found = transcript.read(path, identity)
        if found is None:
            continue
        part = TranscriptPart(
            path=path,
            content=found.content,
            protocol=record.protocol,
            instructions=record.instructions,
            ours=True,
            native_id=record.native_id,
            main=path == mark.path,
            from_start=found.start == 0,
            truncated=found.truncated,
        )
        for one in held(provider.read_transcript, tuple)(part):
            seen[one.control, one.source] = one
    return tuple(seen.values())


def _keep(record: SessionRecord, sessions: SessionStore, seen: tuple[Sighting, ...]) -> None:
    """Write it down; a live run writes its own record, and nobody else does."""
    try:
        with sessions.locked(record.id, wait=0.0):
            warnings = tuple(one.contradicts for one in seen if one.contradicts)
            write_seen(sessions, record.id, seen, warnings)
    except SessionRunning:
        return


def _identity(record: SessionRecord) -> Identity | None:
    if not record.user:
        return None
    from amux.materializer.identity import resolve  # noqa: PLC0415  # few sessions are another user's

    return resolve(record.user)
