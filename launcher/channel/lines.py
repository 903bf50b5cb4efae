"""Lines of text to and from a running agent: what every channel over its pipes is made of.

A thread reads the pipe, so every method may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from amux.launcher.errors import AgentFailed, ChannelError, DeadlinePassed
from amux.launcher.kinds import expect, seconds
from amux.launcher.process.signal_safe import Lent
from amux.providers.errors import Silence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.process.spawn import AgentProcess

SEND_DEADLINE: Final = 30.0
"""Seconds for the agent to take a message from a full pipe."""
FRAME_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one line."""
QUEUE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of messages that nobody has received; past it the agent's stdout is left to fill."""
REST_BYTES: Final = 1024 * 1024
"""At most this much is read after the run's end: the most that a pipe can hold."""
CHUNK: Final = 65536
NOISE_LINES: Final = 200
NOISE_BYTES: Final = 64 * 1024
NOISE_KEPT: Final = 200
"""Characters kept of one line of noise."""
WRITE_SLICE: Final = 0.2
"""Seconds to wait at once for a full pipe to take more."""
ROOM_SLICE: Final = 0.2
"""Seconds to wait at once for somebody to receive, before a look at whether the run is over."""
ENDING_GRACE: Final = 1.0
"""Seconds given to a process whose stdout ended, so that its stderr is complete in the error."""


class SilenceError(Silence, DeadlinePassed):
    """Nothing came within the deadline."""

    code = DeadlinePassed.code


class RunOver:
    """Whether the run is over, as a flag and as a descriptor that a poll wakes up for."""

    def __init__(self) -> None:
        self.told = False
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._use = Lent(lambda: os.close(self.descriptor))

    def tell(self) -> None:
        """Say that it is."""
        self.told = True
        with self._use.use() as there:
            if there:
                os.eventfd_write(self.descriptor, 1)

    def close(self) -> None:
        """Let go of the descriptor."""
        self._use.close()


class LineChannel:
    """Text lines in both directions."""

    def __init__(self, process: AgentProcess) -> None:
        if process.stdin is None or process.stdout is None:
            raise ChannelError("the agent was not started with pipes, so it has no channel")
        self._process = process
        self._stdout = process.stdout
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._queue: deque[tuple[Any, int]] = deque()
        self._queued = 0
        self._ended: str | None = None
        self._over = RunOver()
        self._noise: deque[str] = deque(maxlen=NOISE_LINES)
        self._noise_lines = 0
        self._noise_bytes = 0
        self._thread = threading.Thread(
            target=self._read, name=f"amux-channel-{process.pid}", daemon=True
        )
        self._thread.start()
        # Lets the reader go, without a lock that a signal handler's thread may hold.
        process.on_end(lambda _: self._over.tell())

    @property
    def noise(self) -> tuple[str, ...]:
        """Return the skipped lines, shortened."""
        with self._changed:
            return tuple(self._noise)

    @property
    def ended(self) -> bool:
        """Say whether nothing more will come; what was received before can still be read."""
        return self._ended is not None

    def send_line(self, line: str, *, deadline: float = SEND_DEADLINE) -> None:
        """Send one line; raise DeadlinePassed if the agent does not take it in time."""
        expect("line", line, str)
        if "\n" in line:
            raise ChannelError("a line to send cannot hold a line end")
        self._write(line.encode("utf-8", "surrogatepass") + b"\n", seconds("deadline", deadline))

    def receive_line(self, *, deadline: float) -> str:
        """Return the next line without its end; raise DeadlinePassed where none comes in time."""
        return str(self._next(seconds("deadline", deadline)))

    # --- for the kinds of channel ---

    def _accept(self, line: bytes) -> None:
        """Take one line from the agent; a kind of channel overrides this."""
        self._put(line.decode("utf-8", "replace"), len(line))

    def _put(self, message: Any, size: int) -> None:  # noqa: ANN401  # str or object by kind
        with self._changed:
            while self._queued > QUEUE_LIMIT and self._ended is None and not self._over.told:
                self._changed.wait(ROOM_SLICE)
            self._queue.append((message, size))
            self._queued += size
            self._changed.notify_all()

    def _next(self, deadline: float) -> Any:  # noqa: ANN401  # str or object by kind
        until = time.monotonic() + deadline
        with self._changed:
            while not self._queue:
                if self._ended is not None:
                    raise self._end_error(self._ended)
                left = until - time.monotonic()
                if left <= 0:
                    raise SilenceError(f"the agent sent nothing within {deadline:g} s")
                self._changed.wait(left)
            message, size = self._queue.popleft()
            self._queued -= size
            self._changed.notify_all()
            return message

    def _skip(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")[:NOISE_KEPT]
        self._noise_lines += 1
        self._noise_bytes += len(line)
        with self._changed:
            self._noise.append(text)
        if self._noise_lines > NOISE_LINES or self._noise_bytes > NOISE_BYTES:
            raise ChannelError(f"the agent's stdout is no channel: it goes on like {text!r}")

    def _end_error(self, reason: str) -> AgentFailed | ChannelError:
        if reason:
            return ChannelError(reason)
        status = self._process.status
        how = f"ended ({status})" if status else "closed its stdout"
        return AgentFailed(f"the agent {how}", stderr=self._process.stderr_tail())

    def _write(self, data: bytes, deadline: float) -> None:
        until = time.monotonic() + deadline
        if not self._sending.acquire(timeout=max(0.0, deadline)):
            raise DeadlinePassed(f"another message was not taken within {deadline:g} s")
        try:
            self._write_until(memoryview(data), until)
        except OSError as error:
            self._process.wait(ENDING_GRACE)
            raise self._end_error("") from error
        finally:
            self._sending.release()

    def _write_until(self, view: memoryview, until: float) -> None:
        size = len(view)
        while True:
            view = view[self._process.write(view) :]
            if not view:
                return
            if time.monotonic() > until:
                break
            self._process.writable(min(WRITE_SLICE, max(0.0, until - time.monotonic())))
        reason = f"the agent took {size - len(view)} of {size} bytes in time"
        if len(view) < size:
            self._broken(reason)  # half a message is out
        raise DeadlinePassed(reason)

    # --- the reading thread ---

    def _read(self) -> None:
        reason = ""
        pending = bytearray()
        try:
            for chunk in self._chunks():
                start = len(pending)
                pending += chunk
                if b"\n" not in chunk:
                    if start > FRAME_LIMIT:
                        raise ChannelError(f"the agent sent a line of over {FRAME_LIMIT} bytes")  # noqa: TRY301  # one way out
                    continue
                *lines, rest = bytes(pending).split(b"\n")
                pending = bytearray(rest)
                for line in lines:
                    self._accept(line)
            if pending:
                self._accept_last(bytes(pending))
        except ChannelError as error:
            reason = str(error)
        except (OSError, ValueError):
            pass  # closed under us by `stop`: the same as the end
        except Exception as error:  # noqa: BLE001  # a thread's outermost frame: who waits must hear
            reason = f"amux failed to read the agent: {type(error).__name__}: {error}"
        if not reason:
            self._process.wait(ENDING_GRACE)
        self._broken(reason)
        self._drain()

    def _chunks(self) -> Iterator[bytes]:
        """Yield what the agent writes, to the end of the pipe or, with a little more, of the run.

        The pipe may outlive the run: a target can hand its end to a process of its own elsewhere.
        """
        source, rest = self._stdout.fileno(), REST_BYTES
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._over.descriptor, select.POLLIN)
        while rest > 0:
            ready = {descriptor for descriptor, _ in poll.poll(0 if self._over.told else None)}
            if source in ready:
                chunk = os.read(source, CHUNK)
                if not chunk:
                    return
                rest -= len(chunk) if self._over.told else 0
                yield chunk
            elif self._over.told:
                return

    def _accept_last(self, line: bytes) -> None:
        self._accept(line)

    def _broken(self, reason: str) -> None:
        """End the channel; an earlier reason stands."""
        with self._changed:
            if self._ended is None:
                self._ended = reason
            self._changed.notify_all()

    def _drain(self) -> None:
        """Read on and forget, so that an agent that goes on writing is not blocked for ever."""
        with contextlib.suppress(OSError, ValueError):
            for _ in self._chunks():
                pass
        self._stdout.close()
        self._over.close()
