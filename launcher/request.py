"""What a Runtime asks for: a fresh launch, or the resume of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amux.providers.base import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amux.materializer.values import ProvidedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """Ask for an agent.

    `arguments` are the agent's own. `principal` is an id or alias; None is the caller's own.
    `cwd` None is the caller's folder, or the target's home where isolated. `environment` is the
    caller's; `pass_names` are let through the isolated allow-list. `session` resumes that session
    (then `provider` and `principal` are the record's). `kind` says what started it, and
    `parent` names the session that did; it never lends its Principal. `options` are
    the provider's own (`amux.providers.base.Provider.options`); an unknown one is refused. `pty`
    gives a TERMINAL launch a new PTY of `rows` by `columns` instead of the caller's terminal.
    `require_memory` refuses a launch that would start without. `relayed` says that the caller
    copies its own stdio to and from an agent that has pipes, as `amux.launcher.foreground` does.
    """

    provider: str = ""
    arguments: tuple[str, ...] = ()
    mode: Mode = Mode.STREAM
    principal: str | None = None
    cwd: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pass_names: tuple[str, ...] = ()
    user: str | None = None
    private_home: Path | None = None
    provide: tuple[ProvidedFile, ...] = ()
    start_hub: bool = True
    require_memory: bool = False
    executable: Path | None = None
    session: str | None = None
    fork: bool = False
    kind: str = "conversation"
    parent: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    pty: bool = False
    rows: int = 24
    columns: int = 80
    relayed: bool = False
