"""What is put where another user can use it: planned files, the target's identity, the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

EXECUTABLE_MODE: Final = 0o555
PRIVATE_MODE: Final = 0o400
ACL_MODE: Final = 0o440
"""The service's own, readable for one account by an ACL, whose mask the group bits show."""
WITNESS: Final = "witness.sock"
"""The name in a run's folder that no planned file may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file of a run, below its `agent-config/memory/` folder.

    `name` is a single path segment. An `executable` file is 0555 and stays the service's;
    any other may hold a credential: it stays the service's too, and an ACL lets the target alone
    read it. Where the file system has no ACLs it is 0400 and belongs to the target.
    """

    name: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidedFile:
    """Copy `source`, which the service can read, to `target`, a path below the target's home.

    A file that is there and that amux did not write is kept, unless `replace`.
    """

    source: Path
    target: str
    replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A UNIX identity, complete: what a process of this account is started with."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file as it was put there: absolute path, permission bits, owner, SHA-256 of the bytes."""

    path: Path
    mode: int
    uid: int
    gid: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaths:
    """Where one run's files are, known before anything is made.

    `config` is `<run>/agent-config/memory`; `commands` is the folder below it that holds
    `amux` and nothing else, for PATH; `work` is the only folder that the agent may write to.
    """

    run: Path
    config: Path
    commands: Path
    work: Path

    @property
    def witness(self) -> Path:
        """Return where the run's MCP server tells that it was asked."""
        return self.config / WITNESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that was put in place for one run."""

    paths: RunPaths
    entries: tuple[ManifestEntry, ...]
