"""Read a session's transcript on demand, whoever ran it: what it shows of memory and protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher import transcript
from launcher.errors import BadRequest, SessionRunning
from launcher.foreign import held
from launcher.records import write_seen
from providers.sighting import TranscriptPart

if TYPE_CHECKING:
    from launcher.host import Host
    from launcher.sessions import SessionRecord, SessionStore
    from materializer.values import Identity
    from providers.sighting import Sighting


def verify(record: SessionRecord, host: Host, sessions: SessionStore) -> tuple[Sighting, ...]:
    """Return what the whole transcript shows, and keep it in the record of a session that ended.

    Raises BadRequest where there is nothing to read, ProviderError and MaterializeError.
    """
    if not record.bound:
        raise BadRequest(f"session {record.id} has no memory, so amux promises nothing about it")
    mark = record.transcript
    if mark is None:
        raise BadRequest(
            f"session {record.id} has no transcript that amux knows: it had no turn yet, or "
            f"{record.provider} keeps none"
        )
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
        for one in held(provider.sightings, tuple)(part):
            seen[one.control, one.source] = one
    if not seen:
        raise BadRequest(f"{mark.path} cannot be read, or shows nothing of memory and protocol")
    _keep(record, sessions, tuple(seen.values()))
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
    from materializer.identity import resolve  # noqa: PLC0415  # few sessions are another user's

    return resolve(record.user)
