"""The command line of a worker: a short process of ours that works as the target.

A worker is a module with a `main`. It is started in a Python without the environment and without
site packages, imports what it needs, and only then takes on the target's identity: the target may
not be able to read our Python.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

LIBRARY: Final = str(Path(__file__).absolute().parents[2])


def command(module: str) -> tuple[str, ...]:
    """Return the arguments that start `amux.materializer.<module>` as a worker."""
    code = f"import sys; sys.path.append({LIBRARY!r}); from amux.materializer.{module} import main"
    return (sys.executable, "-I", "-S", "-c", f"{code}; main()")
