"""Check a request's own values before anything is looked up: kinds, and values that are empty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import BadRequest
from amux.launcher.kinds import expect, expect_texts
from amux.materializer.values import ProvidedFile
from amux.providers.base import Mode

if TYPE_CHECKING:
    from amux.launcher.request import LaunchRequest

KINDS: Final[Mapping[str, tuple[type[object], ...]]] = {
    "provider": (str,),
    "start_hub": (bool,),
    "require_memory": (bool,),
    "fork": (bool,),
    "pty": (bool,),
    "relayed": (bool,),
    "mode": (Mode,),
    "principal": (str, type(None)),
    "cwd": (Path, type(None)),
    "environment": (Mapping,),
    "user": (str, type(None)),
    "private_home": (Path, type(None)),
    "executable": (Path, type(None)),
    "session": (str, type(None)),
    "kind": (str,),
    "parent": (str,),
    "options": (Mapping,),
    "rows": (int,),
    "columns": (int,),
}
SEVERAL: Final[Mapping[str, type[object]]] = {
    "arguments": str,
    "pass_names": str,
    "provide": ProvidedFile,
}
EXAMPLES: Final = {str: "'…'", Path: "Path('/…')", Mode: "Mode.STREAM", int: "24"}
WHO_AND_WHERE: Final = ("principal", "user", "session", "cwd", "private_home", "executable")
"""What is never guessed from an empty value: it would be another account, home or folder."""


def check_values(request: LaunchRequest) -> None:
    """Raise BadRequest for a value of the wrong kind, or an empty one that decides who or where."""
    for name, kinds in KINDS.items():
        example = EXAMPLES.get(kinds[0], "")
        expect(f"LaunchRequest.{name}", getattr(request, name), *kinds, example=example)
    for name in ("environment", "options"):
        expect_texts(f"LaunchRequest.{name}", getattr(request, name))
    for name, kind in SEVERAL.items():
        _check_several(name, getattr(request, name), kind)
    for one in request.provide:
        expect("ProvidedFile.source", one.source, Path, example=EXAMPLES[Path])
        expect("ProvidedFile.target", one.target, str, example="'.codex/auth.json'")
        expect("ProvidedFile.replace", one.replace, bool)
    for name in WHO_AND_WHERE:
        # An empty path reads as the current folder, and Path cannot tell them apart.
        if getattr(request, name) in ("", Path()):
            raise BadRequest(
                f"{name} is empty; leave it out, or say which (a variable may not be set)"
            )
    if "" in request.pass_names:
        raise BadRequest("a name in pass_names (--env) is empty; leave it out, or say which")
    if request.private_home is not None and not request.private_home.is_absolute():
        raise BadRequest(f"private_home {request.private_home} is not an absolute path")


def _check_several(name: str, value: object, kind: type[object]) -> None:
    """Refuse a text where several are wanted: Python would take it letter by letter."""
    example = "('-v',)" if kind is str else "(ProvidedFile(…),)"
    if not isinstance(value, (tuple, list)):
        found = type(value).__name__
        raise BadRequest(f"LaunchRequest.{name} must be a tuple, such as {example}, not {found}")
    for one in value:
        if not isinstance(one, kind):
            found = type(one).__name__
            raise BadRequest(
                f"LaunchRequest.{name} must hold {kind.__name__} only, and holds {found}"
            )
