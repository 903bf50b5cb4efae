"""What is learnt about a run while it lives: into the session's record, and to whoever listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.launcher.session.notice import Notice
from amux.launcher.steps.record import write_seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.session.store import SessionStore, TranscriptMark
    from amux.providers.base import Sighting


class Notices:
    """Writes each notice of one run into its record, then tells it. Safe from any thread."""

    def __init__(
        self, sessions: SessionStore, session: str, heard: Callable[[Notice], None]
    ) -> None:
        self._sessions = sessions
        self._session = session
        self._heard = heard

    def tell(
        self,
        *,
        seen: tuple[Sighting, ...] = (),
        warnings: tuple[str, ...] = (),
        mark: TranscriptMark | None = None,
    ) -> None:
        """Write and tell; what a sighting contradicts is a warning too.

        Raises SessionDamaged or OSError where the record cannot be written.
        """
        contradicted = (one.contradicts for one in seen if one.contradicts)
        warnings = tuple(dict.fromkeys((*warnings, *contradicted)))
        write_seen(self._sessions, self._session, seen, warnings, mark)
        if seen or warnings:
            self._heard(Notice(session=self._session, seen=seen, warnings=warnings))

    def say(self, warning: str) -> None:
        """Tell a warning that cannot be written down."""
        self._heard(Notice(session=self._session, warnings=(warning,)))
