"""Run a short command as the target, to see whether the target can: bounded in time and output."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Final

from amux.materializer import worker
from amux.materializer.trialworker import NOT_STARTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.materializer.values import Identity

DEADLINE: Final = 20.0
OUTPUT_LIMIT: Final = 65_536
LAST_OUTPUT: Final = 0.5
"""Seconds for what is left in the pipes once the command has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How the command ended: exit status (negative: signal; None: deadline), and its output."""

    status: int | None
    stdout: bytes
    stderr: bytes

    @property
    def reason(self) -> str:
        """Say in a few words why it failed."""
        if self.status is None:
            return "no answer in time"
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        said = lines[-1].removeprefix("amux: ") if lines else "no message"
        if self.status == NOT_STARTED:
            return said
        ending = f"exit {self.status}" if self.status >= 0 else f"signal {-self.status}"
        return f"{ending}: {said}"


def run(  # noqa: PLR0913  # all but the command by keyword
    argv: tuple[str, ...],
    *,
    identity: Identity | None,
    environment: Mapping[str, str],
    cwd: str = "/",
    reads: tuple[str, ...] = (),
    deadline: float = DEADLINE,
) -> Trial:
    """Run `argv` (absolute) as the target in exactly this environment, without input or terminal.

    `reads` are files that the target must be able to open first.
    """
    order = {
        "argv": list(argv),
        "environment": dict(environment),
        "cwd": cwd,
        "reads": list(reads),
        "identity": None if identity is None else asdict(identity),
        "parent": os.getpid(),
    }
    # The environment is part of the order: the worker must not load what the target names.
    with subprocess.Popen(
        worker.command("trialworker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={},
        start_new_session=True,
    ) as process:
        try:
            return _converse(process, json.dumps(order).encode(), time.monotonic() + deadline)
        finally:
            # Its unreaped leader keeps the group's number ours, and what it left behind ends too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _converse(process: subprocess.Popen[bytes], order: bytes, until: float) -> Trial:
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018  # just piped
    with contextlib.suppress(BrokenPipeError):  # it says why on stderr
        process.stdin.write(order)
        process.stdin.close()
    output: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    ending = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            for stream, kept in output.items():
                selector.register(stream, selectors.EVENT_READ, kept)
            selector.register(ending, selectors.EVENT_READ)
            ended = _listen(selector, until)
    finally:
        os.close(ending)
    # Not waited for here: see `run`.
    result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) if ended else None
    status = None
    if result is not None:
        status = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
    return Trial(
        status=status,
        stdout=bytes(output[process.stdout]),
        stderr=bytes(output[process.stderr]),
    )


def _listen(selector: selectors.DefaultSelector, until: float) -> bool:
    """Keep the output until the command and its pipes have ended; say whether the command has.

    Once it has, its pipes are given LAST_OUTPUT seconds: what it left behind may hold them.
    """
    ended = False
    while selector.get_map() and (left := until - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            kept: bytearray | None = key.data
            if kept is None:
                ended = True
                until = min(until, time.monotonic() + LAST_OUTPUT)
                selector.unregister(key.fileobj)
                continue
            chunk = os.read(key.fd, OUTPUT_LIMIT)
            kept += chunk[: OUTPUT_LIMIT - len(kept)]
            if not chunk:
                selector.unregister(key.fileobj)
    return ended
