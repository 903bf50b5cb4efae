"""One run of a session as it is being made: the right to run it, its draft record, its folder."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amux.hub.residence import residence
from amux.launcher.process.run_processes import boot_id
from amux.launcher.session.store import SessionRecord, SessionStore, State, timestamp
from amux.materializer import runs

if TYPE_CHECKING:
    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.session.store import SessionLock
    from amux.launcher.target import ResolvedTarget
    from amux.materializer.values import PlannedFile, RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a session as it is being made. `lock` is the right to run it.

    `given` are files of the run that stand in the arguments for descriptors of the caller's.
    `unclaim` takes back a claim on the target's account that this launch made.
    """

    request: LaunchRequest
    host: Host
    target: ResolvedTarget
    record: SessionRecord
    paths: RunPaths
    lock: SessionLock
    unclaim: contextlib.ExitStack
    given: tuple[PlannedFile, ...] = ()

    def use_account(self) -> None:
        """Let the claim stand: from now on something of the Principal's may be in the account."""
        self.unclaim.pop_all()


def claim(
    request: LaunchRequest, target: ResolvedTarget, host: Host, undo: contextlib.ExitStack
) -> Attempt:
    """Take the right to run the session, and draft its record: a new one, a fork's, its own."""
    sessions = SessionStore(host.home)
    stored = target.stored
    fresh = stored is None or (target.resume is not None and target.resume.fork)
    identifier = stored.id if stored is not None and not fresh else sessions.new_id()
    lock = sessions.lock(identifier)
    undo.callback(lock.release)
    known = (
        SessionRecord(id=identifier, provider=target.provider.name) if stored is None else stored
    )
    record = replace(
        known,
        id=identifier,
        agent_version=target.version,
        native_id="" if fresh else _continued(target, known),
        conversations=() if fresh else known.conversations,
        kind=request.kind if stored is None else known.kind,
        parent=known.id if fresh and stored is not None else known.parent or request.parent,
        command=target.command.argv,
        arguments=target.arguments,
        mode=str(request.mode),
        cwd=target.cwd,
        user=target.identity.user if target.identity else "",
        private_home=str(request.private_home or known.private_home),
        marker=secrets.token_hex(16),
        boot=boot_id(),
        home=residence(host.home).identity,
        created=timestamp() if fresh else known.created,
        started="",
        ended="",
        exit_code=None,
        exit_signal=None,
        survivors=0,
        failure="",
        processes=(),
        seen=(),
        transcript=None if fresh else known.transcript,
        state=State.STARTING,
    )
    return Attempt(
        request=request,
        host=host,
        target=target,
        record=record,
        paths=_place(None if fresh else stored, host),
        lock=lock,
        unclaim=undo.enter_context(contextlib.ExitStack()),
    )


def _continued(target: ResolvedTarget, known: SessionRecord) -> str:
    """Return the conversation that this run goes on with: a session may have more than one."""
    return known.native_id if target.resume is None else target.resume.native_id


def _place(stored: SessionRecord | None, host: Host) -> RunPaths:
    """Name the run's folder: the one that the session had, or a new one."""
    if stored is not None and stored.run and Path(stored.run).parent == host.runs:
        return runs.reopen(Path(stored.run))
    return runs.allocate(host.runs)
