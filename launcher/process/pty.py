"""An agent's PTY in the hands of a supervisor: pexpect on a descriptor of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pexpect.fdpexpect import fdspawn

if TYPE_CHECKING:
    Spawn = fdspawn[bytes]
else:
    Spawn = fdspawn

EXPECT_SECONDS: Final = 30
"""How long `expect` waits where it is not told."""


class Terminal(Spawn):
    """Expects and sends on a PTY; what the agent said last can be read after its end."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(os.dup(descriptor), timeout=EXPECT_SECONDS)

    def __del__(self) -> None:
        self.close()
