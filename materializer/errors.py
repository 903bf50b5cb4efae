"""Errors of the materializer. Each has a stable `code` and a sentence that says what to do next.

MaterializeError
├── RootUnsafe            the runs root is not one that files may be put in
├── RunInUse              another process holds that run
├── NotPlaced             a file or folder could not be made as planned
├── IdentityRefused       the account does not exist, or no launch may use it
├── CapabilityMissing     this process may not change identity
├── UidTaken              the account serves another Principal
├── InterpreterNotFound   no interpreter that the target can run
└── NotProvided           a file or folder could not be made in the target's home
"""

from __future__ import annotations

from typing import ClassVar

from amux.errors import AmuxError


class MaterializeError(AmuxError):
    """Something could not be put where another user can use it."""

    code: ClassVar[str] = "materialize_failed"


class RootUnsafe(MaterializeError):
    """The runs root is open to somebody else, on a noexec mount, or out of the target's reach."""

    code = "runs_root_unsafe"


class RunInUse(MaterializeError):
    """Another process holds this run."""

    code = "run_in_use"
    retryable = True


class NotPlaced(MaterializeError):
    """A file or folder of the run could not be made as planned; nothing of it is left."""

    code = "not_placed"


class IdentityRefused(MaterializeError):
    """The account does not exist, is not usable, or would not isolate anything."""

    code = "identity_refused"


class CapabilityMissing(MaterializeError):
    """This process lacks what changing identity needs."""

    code = "capability_missing"


class UidTaken(MaterializeError):
    """The account has served another Principal; what it kept would be readable."""

    code = "uid_taken"


class InterpreterNotFound(MaterializeError):
    """No interpreter was found with which the target can run the agent-side command."""

    code = "interpreter_not_found"

    def __init__(self, message: str, *, tried: tuple[tuple[str, str], ...] = ()) -> None:
        lines = "".join(f"\n  {path}: {why}" for path, why in tried)
        super().__init__(f"{message}; tried:{lines}" if tried else message)
        self.tried = tried


class NotProvided(MaterializeError):
    """A file or folder could not be made in the target's home."""

    code = "not_provided"
