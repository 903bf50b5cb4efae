"""The conversation of one run, as the agent's own transcript shows it: the second proof.

Settings say what should be; the transcript says what is. It is read before a resume (what was added
without amux since the last run), after the first turn, and at the end of each run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import LaunchError
from amux.launcher.evidence import transcript
from amux.launcher.provider_call import held
from amux.materializer.errors import MaterializeError
from amux.providers.base import NATIVE_MEMORY, Sighting, TranscriptPart, Transcripts
from amux.providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.evidence.notices import Notices
    from amux.launcher.evidence.transcript import Standing
    from amux.launcher.session.store import TranscriptMark
    from amux.materializer.values import Identity
    from amux.providers.base import AgentRequest, Provider

UNREADABLE: Final = (LaunchError, ProviderError, MaterializeError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the session froze: the protocol, and the instructions with it merged in."""

    protocol: str
    instructions: str = ""


class Conversation:
    """Reads one run's conversation. Safe from any thread.

    Without a protocol the launch has no memory and promises nothing, so nothing is read.
    """

    def __init__(
        self,
        provider: Provider,
        request: AgentRequest,
        identity: Identity | None,
        protocol: str | None,
    ) -> None:
        self._provider = provider
        self._request = request
        self._identity = identity
        self._texts = Texts(protocol=protocol or "")
        self._bound = protocol is not None
        self._base: Standing | None = None
        self._known: frozenset[str] = frozenset()
        self._looking = threading.Lock()
        self._began = time.time_ns()
        self._over = False

    def before(self, mark: TranscriptMark | None) -> tuple[Sighting, ...]:
        """Return what was added to the resumed conversation since `mark`, without amux."""
        resume = self._request.resume
        if resume is None or not self._bound:
            return ()
        where = self._where(resume.native_id)
        if where is None:
            return ()
        since, digest = (mark.size, mark.digest) if mark else (0, "")
        found = transcript.read(where.main, self._identity, since=since, digest=digest)
        if found is None:
            return ()
        if (
            resume.fork
        ):  # a fork writes a file of its own, which begins with all that this one holds
            self._known = self._wrong(self._whole(where, resume.native_id))
        else:
            self._base = found
        if mark is None or not found.content:
            return ()
        seen = self._sightings(self._part(found, resume.native_id, ours=False))
        self._known |= self._wrong(seen)
        return seen

    def of_others(self, native_id: str) -> tuple[str, ...]:
        """Return what contradicts the launch in a conversation that did not begin in the session.

        Raises NotProvided, and what a provider raises.
        """
        where = self._where(native_id)
        found = None if where is None else transcript.read(where.main, self._identity)
        if found is None:
            return ("its transcript cannot be read, so what is in it is not known",)
        seen = self._sightings(self._part(found, native_id, ours=False))
        return tuple(one.contradicts for one in seen if one.contradicts)

    def _whole(self, where: Transcripts, native_id: str) -> tuple[Sighting, ...]:
        found = transcript.read(where.main, self._identity)
        return () if found is None else self._sightings(self._part(found, native_id, ours=False))

    def _wrong(self, seen: tuple[Sighting, ...]) -> frozenset[str]:
        return frozenset(one.control for one in seen if one.contradicts)

    def found(self) -> str:
        """Return the native id of a run that ended well and told none; empty where it is not sure.

        Such a run left its conversation among the files that the provider names; it is known if it
        is the only one that this run can have begun. Never raises.
        """
        if not self._bound:
            return ""
        identify = held(self._provider.identify_conversation, str)
        ids = set()
        with contextlib.suppress(*UNREADABLE):
            patterns = held(self._provider.candidate_transcripts, tuple)(self._request)
            for path in transcript.newer(patterns, self._identity, since=self._began):
                one = transcript.read(path, self._identity)
                if one is not None:
                    ids.add(identify(self._request, self._part(one, "", ours=True)))
        ids.discard("")
        return ids.pop() if len(ids) == 1 else ""

    def begin(self, instructions: str) -> None:
        """Take the text that the session froze; the run's own part begins here."""
        self._texts = Texts(protocol=self._texts.protocol, instructions=instructions)

    def look(
        self,
        native_id: Callable[[], str],
        notices: Notices,
        on_contradiction: Callable[[str], None] | None = None,
    ) -> bool:
        """Read what this run wrote and tell it; say whether there is nothing more to wait for.

        With `on_contradiction` it waits for the end of a turn, and `on_contradiction` hears, once,
        that native memory is in a conversation that was said to have none. Without, the run is
        over. Never raises.
        """
        with self._looking:
            if self._over or not self._bound:
                return True
            try:
                over, grave = self._look(native_id(), notices, at_end=on_contradiction is None)
            except UNREADABLE as error:
                over, grave = True, None
                with contextlib.suppress(*UNREADABLE):
                    notices.tell(
                        warnings=(f"the conversation's transcript cannot be read: {error}",)
                    )
                self._over = True
            if on_contradiction is None or grave is None:
                return over
            self._over = True
        on_contradiction(grave)  # by who ends the run, and that end looks here too
        return True

    def hear(
        self, seen: tuple[Sighting, ...], notices: Notices, on_contradiction: Callable[[str], None]
    ) -> None:
        """Tell what the agent itself says of its context; end the run as `look` does.

        Never raises.
        """
        with contextlib.suppress(*UNREADABLE):
            notices.tell(seen=seen)
        grave = next((one.contradicts for one in seen if self._is_grave(one)), None)
        with self._looking:
            if grave is None or self._over:
                return
            self._over = True
        on_contradiction(grave)

    def _look(self, native_id: str, notices: Notices, *, at_end: bool) -> tuple[bool, str | None]:
        """Tell what is there; return whether that was all, and what the run has to end for."""
        found = self._own(native_id)
        if found is None:
            return False, None
        standing, where, seen = found
        if not at_end and not any(one.turn for one in seen):
            return False, None
        notices.tell(seen=seen, mark=standing.mark(where.beside))
        return True, next((one.contradicts for one in seen if self._is_grave(one)), None)

    def _own(self, native_id: str) -> tuple[Standing, Transcripts, tuple[Sighting, ...]] | None:
        where = self._where(native_id)
        if where is None:
            return None
        base = self._base
        since, digest = (base.size, base.digest) if base else (0, "")
        standing = transcript.read(where.main, self._identity, since=since, digest=digest)
        if standing is None:
            return None
        parts = [self._part(standing, native_id, ours=True)]
        for path in transcript.newer(where.beside, self._identity, since=self._began):
            beside = transcript.read(path, self._identity)
            if beside is not None and path != standing.path:
                parts.append(self._part(beside, native_id, ours=True, main=False))
        latest = {(one.control, one.source): one for part in parts for one in self._sightings(part)}
        return standing, where, tuple(latest.values())

    def _is_grave(self, one: Sighting) -> bool:
        """Say whether it ends the run: native memory, and not what was known before the start."""
        native = one.control.startswith(NATIVE_MEMORY)
        return native and bool(one.contradicts) and one.control not in self._known

    def _where(self, native_id: str) -> Transcripts | None:
        named = held(self._provider.transcripts, Transcripts, NoneType)
        return named(self._request, native_id)

    def _sightings(self, part: TranscriptPart) -> tuple[Sighting, ...]:
        return held(self._provider.read_transcript, tuple)(part)

    def _part(
        self, found: Standing, native_id: str, *, ours: bool, main: bool = True
    ) -> TranscriptPart:
        return TranscriptPart(
            path=found.path,
            content=found.content,
            protocol=self._texts.protocol,
            instructions=self._texts.instructions,
            ours=ours,
            native_id=native_id,
            main=main,
            from_start=found.start == 0,
            truncated=found.truncated,
        )
