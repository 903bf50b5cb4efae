"""The keeper of a test session: it outlives the session and fails it where something is left.

The session itself runs in a child. The keeper is the subreaper of all that the tests start, so a
process that outlives its parents becomes the keeper's own, and none can hide.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from fixtures.ledger import PLACE
from tests import leftovers

if TYPE_CHECKING:
    from types import FrameType

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
ENDING_SECONDS: Final = 60.0
"""How long a process that is ending when the session has come to its own end may take."""
FAILED: Final = int(pytest.ExitCode.TESTS_FAILED)
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the session in a child and return its status, or 1 where it left something."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return None
    place = Place.make()
    before = None if leftovers.others() else leftovers.Traces.now()
    sys.stdout.flush()
    sys.stderr.flush()
    keeper = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    session = os.fork()
    if session == 0:
        _go_with(keeper)
        place.enter()
        return None
    status = _follow(session)
    left = [
        *_end_processes(ENDING_SECONDS if status <= FAILED else 0),
        *leftovers.recorded(place.ledger),
    ]
    left += leftovers.below(place.temporary)
    if before is not None and not leftovers.others():
        leftovers.sweep(before)
        left += leftovers.Traces.now().since(before)
    shutil.rmtree(place.folder)
    if left:
        print(f"\nThe session left {len(left)} behind:", *left, sep="\n  ")  # noqa: T201  # as pytest
    return status or bool(left)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the session's own temporary files and its ledger are."""

    folder: Path

    @classmethod
    def make(cls) -> Place:
        """Make the folder; every account may use it as it may use /tmp."""
        made = cls(Path(tempfile.mkdtemp(prefix="amux-tests-")))
        made.folder.chmod(0o755)
        made.temporary.mkdir()
        made.temporary.chmod(0o1777)
        return made

    @property
    def ledger(self) -> Path:
        """Return the file that `fixtures.ledger` writes."""
        return self.folder / "ledger"

    @property
    def temporary(self) -> Path:
        """Return the session's TMPDIR."""
        return self.folder / "tmp"

    def enter(self) -> None:
        """Send the session's temporary files here, but for the folders that pytest keeps itself."""
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
        os.environ[PLACE] = str(self.ledger)


def _go_with(keeper: int) -> None:
    """End the session when its keeper is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != keeper:
        os.kill(os.getpid(), signal.SIGTERM)


def _follow(session: int) -> int:
    """Reap the session and whatever it orphans until the session ends; return its status."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        with contextlib.suppress(ProcessLookupError):
            os.kill(session, number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the session itself
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    while True:
        pid, status = os.wait()
        if pid == session:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_processes(grace: float) -> list[str]:
    """Name what still lives when what was ending has had its time, and end it."""
    keeper = psutil.Process()
    psutil.wait_procs(keeper.children(recursive=True), timeout=grace)
    left: list[str] = []
    while living := keeper.children(recursive=True):  # what one of them leaves comes here
        left += leftovers.described(living)
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(living)
    return left
