"""What a binding looks like: `global`, or `principal:<id>`."""

from __future__ import annotations

from typing import Final

GLOBAL_BINDING: Final = "global"
PRINCIPAL_PREFIX: Final = "principal:"
