"""`amux launch` and `amux resume`: one agent in the foreground, on the caller's own terminal."""

from __future__ import annotations
