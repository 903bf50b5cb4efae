"""Errors of the launcher. Each has a stable `code` and a sentence that says what to do next.

LaunchError
├── AgentNotFound       the agent's command was not found, or the target cannot run it
├── AgentFailed         the agent ended, or broke off its channel, before it was ready
├── ChannelError        a broken frame, an error answer, or a channel that there is not
│   └── DeadlinePassed  nothing came, or was taken, in time; the channel may go on
├── MemoryNotIsolated   native memory could not be confirmed off (wraps the provider's error)
├── MemoryRequired      the launch demands memory, and would be without
├── CommandNotUsable    the agent-side command cannot be found or run by the target
├── IsolationRefused    an isolated launch that cannot be made safely
├── SessionNotFound     no record of that id
├── SessionDamaged      a record that cannot be read
├── SessionRunning      a live run of that session exists
├── HostFailed          the machine refused: a full or read-only disk, no descriptors left, no /proc
└── BadRequest          options that contradict each other or name what does not exist
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, ClassVar

from amux.errors import AmuxError

if TYPE_CHECKING:
    from collections.abc import Iterator


class LaunchError(AmuxError):
    """amux could not do what was asked."""

    code: ClassVar[str] = "launch_failed"


class AgentNotFound(LaunchError):
    """The agent's command was not found, or cannot be run by the target user."""

    code = "agent_not_found"


class AgentFailed(LaunchError):
    """The agent ended or went silent before it was ready; carries the end of its stderr."""

    code = "agent_failed"

    def __init__(self, message: str, *, stderr: str = "") -> None:
        super().__init__(f"{message}; the end of its stderr:\n{stderr}" if stderr else message)
        self.stderr = stderr


class ChannelError(LaunchError):
    """The channel carried a broken frame or an error answer, or there is none of that kind."""

    code = "channel"


class DeadlinePassed(ChannelError):
    """Nothing came, or nothing was taken, before a deadline; the agent may still be at work."""

    code = "deadline_passed"
    retryable = True


class MemoryNotIsolated(LaunchError):
    """Memory is bound, and the agent's native memory could not be confirmed off."""

    code = "native_memory_not_confirmed"


class MemoryRequired(LaunchError):
    """The launch demands memory, and would have started without."""

    code = "memory_required"


class CommandNotUsable(LaunchError):
    """The agent-side command cannot be found or run by the target user."""

    code = "memory_command_not_usable"


class IsolationRefused(LaunchError):
    """The isolated launch cannot be made safely on this machine or with these options."""

    code = "isolation_refused"


class SessionNotFound(LaunchError):
    """There is no session record of that id."""

    code = "session_not_found"


class SessionDamaged(LaunchError):
    """The session record cannot be read; no other record is touched."""

    code = "session_damaged"


class SessionRunning(LaunchError):
    """The session has a live run already."""

    code = "session_running"
    retryable = True


class HostFailed(LaunchError):
    """The machine refused something: a disk is full or read-only, descriptors are used up."""

    code = "host_failed"
    retryable = True


@contextlib.contextmanager
def host_errors(what: str) -> Iterator[None]:
    """Turn an OSError of the block into HostFailed, which says what could not be done and why."""
    try:
        yield
    except OSError as error:
        named = (
            f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
        )
        raise HostFailed(f"{what}: {error.strerror or error}{named}") from error


class BadRequest(LaunchError):
    """The options contradict each other, or name something that does not exist."""

    code = "bad_request"
