"""Errors of the Hub, as they travel over HTTP.

    HubError
    ├── Unauthenticated     401  no credential, or one that the Hub does not know
    ├── Forbidden           403  a known caller who may not do this
    ├── BindingMismatch     403  the binding sent is not the one that holds
    ├── MemoryDisabled      403  memory.enabled is false
    ├── InvalidRequest      400  a malformed body, query, range or revision
    ├── InvalidPath         400  a path that names no document
    ├── Conflict            409  the revision moved; carries the one observed
    ├── LimitExceeded       413  carries the limit's name, its value and the size found
    ├── RejectedContent     422  the content guard refused; carries rule and line
    ├── Undecodable         422  a stored file is not UTF-8
    ├── Unavailable         503  the Hub cannot be reached or is stopping
    ├── StorageFailed       507  the file system refused; the old document stands
    └── LocalRefusal             met on the Hub's own machine, never sent over HTTP
        ├── HomeRefused          AMUX_HOME, or a folder or file in it, cannot be trusted
        ├── ConfigRefused        config.toml or a value for it
        ├── IdentityRefused      a Principal, alias or credential, or their files
        ├── AlreadyRunning       another Hub holds this root
        └── NotStarted           the Hub did not start, or did not stop

`WIRE_ERRORS` are those with a code and status of their own on the wire. The agent-side
code cannot import this module (it runs alone, on the standard library); a test holds its
table of codes against this one.
"""

from __future__ import annotations

from typing import ClassVar, Final

from amux.errors import AmuxError
from amux.hub.secret import redact

JsonField = str | int | bool | None


class HubError(AmuxError):
    """Refuse a call, with a stable `code`, an HTTP `status` and further JSON `fields`.

    The message never holds a credential's secret.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **fields: JsonField) -> None:
        message = redact(message)
        super().__init__(message)
        self.message = message
        self.fields = fields

    def body(self) -> dict[str, dict[str, JsonField]]:
        """Return the error as it is sent: `{"error": {"code", "message", …}}`."""
        return {"error": {"code": self.code, "message": self.message, **self.fields}}


class Unauthenticated(HubError):
    """The call carried no credential, or one that the Hub does not know."""

    code, status = "unauthenticated", 401


class Forbidden(HubError):
    """The caller is known and may not do this."""

    code, status = "forbidden", 403


class BindingMismatch(HubError):
    """The binding sent is missing or is not the one that holds for this credential."""

    code, status = "binding_mismatch", 403


class MemoryDisabled(HubError):
    """`memory.enabled` is false in the running Hub."""

    code, status = "memory_disabled", 403


class InvalidRequest(HubError):
    """The body, query, range or revision is malformed."""

    code, status = "invalid_request", 400


class InvalidPath(HubError):
    """The path does not name a document (docs/memory-store.md)."""

    code, status = "invalid_path", 400


class Conflict(HubError):
    """The document's revision is not the expected one; `revision` is the one observed."""

    code, status = "conflict", 409

    def __init__(self, message: str, *, revision: str) -> None:
        super().__init__(message, revision=revision)
        self.revision = revision


class LimitExceeded(HubError):
    """A limit is exceeded: `limit` names it, `maximum` and `size` are in its unit."""

    code, status = "limit_exceeded", 413


class RejectedContent(HubError):
    """The content guard refused: `rule` and `line` say where, never the text matched."""

    code, status = "rejected_content", 422


class Undecodable(HubError):
    """The stored file is not UTF-8 text."""

    code, status = "undecodable", 422


class Unavailable(HubError):
    """The Hub cannot be reached, or is stopping."""

    code, status = "unavailable", 503
    retryable = True


class StorageFailed(HubError):
    """The file system refused a step of a write; the old document stands."""

    code, status = "storage_failed", 507
    retryable = True


class LocalRefusal(HubError):
    """Something on this machine has to be mended first; never sent over HTTP."""

    code = "local_refusal"


class HomeRefused(LocalRefusal):
    """AMUX_HOME, or a folder or file in it, cannot be trusted or used."""

    code = "home_refused"


class ConfigRefused(LocalRefusal):
    """`config.toml`, or a value for it, is not acceptable."""

    code = "config_refused"


class IdentityRefused(LocalRefusal):
    """A Principal, an alias, a credential, or one of their files is not acceptable."""

    code = "identity_refused"


class AlreadyRunning(LocalRefusal):
    """Another Hub holds this root."""

    code = "already_running"


class NotStarted(LocalRefusal):
    """The Hub did not start or stop within its time."""

    code = "not_started"
    retryable = True


WIRE_ERRORS: Final[tuple[type[HubError], ...]] = (
    Unauthenticated,
    Forbidden,
    BindingMismatch,
    MemoryDisabled,
    InvalidRequest,
    InvalidPath,
    Conflict,
    LimitExceeded,
    RejectedContent,
    Undecodable,
    Unavailable,
    StorageFailed,
)
