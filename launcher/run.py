"""One run of a session: the live agent, its channel and report, and what happens when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from amux.launcher.channel.jsonlines import JsonLinesChannel
from amux.launcher.errors import ChannelError
from amux.launcher.process.signal_safe import Moment

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from types import TracebackType

    from amux.launcher.channel.lines import LineChannel
    from amux.launcher.channel.stdio_relay import Driving
    from amux.launcher.process.spawn import AgentProcess, ExitStatus
    from amux.launcher.report import LaunchReport
    from amux.providers.base import Sighting


class Run:
    """A running agent with what was established about it.

    Every method is safe from any thread, and `stop` in a signal handler too.
    `driving` holds a program that drives the agent over the caller's stdio. Used as a context
    manager it stops the agent at the end of the block.
    """

    def __init__(  # noqa: PLR0913  # what a run is made of, each by its own name
        self,
        *,
        report: LaunchReport,
        process: AgentProcess,
        channel: LineChannel | None,
        driving: Driving | None,
        closing: contextlib.ExitStack,
        ended: Callable[[ExitStatus], None],
    ) -> None:
        self.report = report
        self.process = process
        self.driving = driving
        self._channel = channel
        self._closing = closing
        self._told = ended
        self._finished = Moment()
        process.on_end(self._end)

    @property
    def channel(self) -> JsonLinesChannel:
        """Return the structured channel; raise ChannelError in a mode that has none."""
        if not isinstance(self._channel, JsonLinesChannel):
            message = (
                f"a {self.report.mode} run of {self.report.provider} has no structured channel"
            )
            raise ChannelError(message)
        return self._channel

    @property
    def noise(self) -> tuple[str, ...]:
        """Return the lines that the channel skipped, shortened; none where there is no channel."""
        return () if self._channel is None else self._channel.noise

    @property
    def lines(self) -> LineChannel:
        """Return the channel of plain lines; raise ChannelError if there is none."""
        if self._channel is None or isinstance(self._channel, JsonLinesChannel):
            message = f"a {self.report.mode} run of {self.report.provider} speaks no plain lines"
            raise ChannelError(message)
        return self._channel

    def verify(self, *, deadline: float) -> tuple[Sighting, ...]:
        """Ask the agent, between two turns, what its context holds; it goes into the record too.

        Raises ChannelError for an agent that cannot be asked, and DeadlinePassed.
        """
        inquiry = None if self.channel.ended else self.channel.inquiry
        if inquiry is None:
            raise ChannelError(
                f"this run of {self.report.provider} cannot be asked what its context holds"
            )
        return inquiry.ask(deadline=deadline)

    def on_end(self, callback: Callable[[ExitStatus], None]) -> None:
        """Call back once when the run has ended and is tidied up."""

        def tidied(status: ExitStatus) -> None:
            self._finished.wait()
            callback(status)

        self.process.on_end(tidied)

    def wait(self, deadline: float | None = None) -> ExitStatus | None:
        """Wait until the agent is gone and the run is tidied up; None if `deadline` s passed."""
        if not self._finished.wait(deadline):
            return None
        return self.process.status

    def stop(self) -> ExitStatus:
        """End the agent by the stop ladder and tidy up."""
        status = self.process.stop()
        self._finished.wait()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _end(self, status: ExitStatus) -> None:
        """Tidy up once: the record, the lease, the run folder."""
        try:
            self._told(status)
        finally:  # a record that cannot be written keeps neither credential nor lock
            try:
                self._closing.close()
            finally:
                self._finished.tell()
