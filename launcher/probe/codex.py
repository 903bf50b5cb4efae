"""The offline probe of Codex: every control of a bound launch, without any model turn.

It is a launch like any other, with the flags, tools and framing of one, in a throw-away home that
says the opposite of what a launch must bring about: native memory is on in the user's file, under
both of its names, and there is an old summary to be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from typing import TYPE_CHECKING, Final

from amux.errors import AmuxError
from amux.launcher.launch import launch
from amux.launcher.probe.findings import Finding, ProbeReport
from amux.launcher.probe.scene import USERS, Scene, scene
from amux.launcher.session.store import SessionStore
from amux.providers.codex import SHOWN

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.report import LaunchReport
    from amux.launcher.session.store import SessionRecord

NOT_SHOWN: Final = (
    "what a live model does with the protocol",
    "background work and sub-agents: they need model turns",
    "settings of this machine's real Codex home, and of the account that it is logged in to",
)


def probe_codex(executable: Path | None) -> ProbeReport:
    """Probe the Codex at `executable`, or on PATH; what fails is a finding, not an exception."""
    findings: list[Finding] = []
    with scene("codex", executable) as stage:
        sessions = SessionStore(stage.host.home)
        try:
            findings += _look(stage, sessions)
        except AmuxError as error:
            said = f"{error.code}: {error}"
            findings.append(_finding("bound launch", said, "amux", passed=False))
        records = sessions.list().records
        return ProbeReport(
            provider="codex",
            version=records[0].agent_version if records else None,
            command=records[0].command if records else (),
            shown_for=SHOWN,
            findings=tuple(findings),
            not_shown=NOT_SHOWN,
        )


def _look(stage: Scene, sessions: SessionStore) -> list[Finding]:
    codex = stage.home / ".codex"
    before = _digests(codex)
    with launch(stage.request(), stage.host) as run:
        report = run.report
    return [
        *_launched(report, sessions.load(report.session)),
        _stored(codex, report.native_id or ""),
        _unchanged(before, _digests(codex)),
        _unasked(stage),
    ]


def _launched(report: LaunchReport, record: SessionRecord) -> list[Finding]:
    """Say what the launch's own report and record hold."""
    bound = report.binding or str(report.unbound)
    merged = record.instructions == f"{USERS}\n\n{record.protocol}"
    return [
        _finding("binding", bound, "report", passed=bool(report.binding)),
        *(_finding(one.control, one.observed, one.source) for one in report.controls),
        *(_finding("warning", text, "report") for text in report.warnings),
        _finding(
            "developerInstructions",
            "accepted: the user's own, then the protocol, once" if merged else "another text",
            "thread/start",
            passed=merged,
        ),
    ]


def _stored(codex: Path, native_id: str) -> Finding:
    stored = _stored_mode(codex, native_id)
    source = "Codex's own state"
    return _finding("stored memory mode", stored or "none", source, passed=stored == "disabled")


def _stored_mode(codex: Path, native_id: str) -> str | None:
    """Return the mode in the newest of Codex's state files that knows the thread."""
    for path in sorted(codex.glob("state_*.sqlite"), reverse=True):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(path)) as state,
        ):
            row = state.execute(
                "select memory_mode from threads where id = ?", (native_id,)
            ).fetchone()
            if row is not None:
                return str(row[0])
    return None


def _unchanged(before: dict[str, str], after: dict[str, str]) -> Finding:
    changed = sorted(name for name, digest in before.items() if after.get(name) != digest)
    observed = f"changed: {', '.join(changed)}" if changed else "unchanged"
    source = "digests before and after"
    return _finding("the user's own files", observed, source, passed=not changed)


def _unasked(stage: Scene) -> Finding:
    asked = len(stage.model.turns)
    return _finding("model requests", str(asked), "scripted model", passed=not asked)


def _finding(subject: str, observed: str, source: str, *, passed: bool = True) -> Finding:
    return Finding(subject=subject, observed=observed, passed=passed, source=source)


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
