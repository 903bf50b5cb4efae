"""Start a worker: a short process of ours that works as the target.

A worker is a module with a `main`. It is started in a Python without the environment and without
site packages, imports what it needs, and only then takes on the target's identity: the target may
not be able to read our Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LIBRARY: Final = str(Path(__file__).absolute().parents[2])


def command(module: str) -> tuple[str, ...]:
    """Return the arguments that start `amux.materializer.<module>` as a worker."""
    code = f"import sys; sys.path.append({LIBRARY!r}); from amux.materializer.{module} import main"
    return (sys.executable, "-I", "-S", "-c", f"{code}; main()")


def run(
    module: str, fields: Iterable[str], *, passed: tuple[int, ...] = (), deadline: float
) -> bytes:
    """Hand a worker its NUL-ended fields and return what it answers.

    `passed` are the descriptors that the fields name. Raises subprocess.TimeoutExpired after
    `deadline` seconds.
    """
    return subprocess.run(
        command(module),
        input=b"".join(os.fsencode(field) + b"\0" for field in fields),
        capture_output=True,
        pass_fds=passed,
        cwd="/",
        env={},
        start_new_session=True,
        timeout=deadline,
        check=False,
    ).stdout
