"""What a probe saw, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

SCHEMA: Final = 1
OBSERVED_WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at, what was seen, and whether it is as it must be."""

    subject: str
    observed: str
    passed: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What one probe of one agent came to.

    `shown_for` are the versions for which the provider's guarantees were shown; `not_shown` names
    what the probe cannot say.
    """

    provider: str
    version: str | None
    command: tuple[str, ...]
    shown_for: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_shown: tuple[str, ...]
    schema: int = SCHEMA

    @property
    def passed(self) -> bool:
        """Say whether everything was as it must be."""
        return all(finding.passed for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "passed": self.passed}

    def as_text(self) -> str:
        """Return the report as a table."""
        width = max(len(finding.subject) for finding in self.findings)
        lines = [f"{self.provider} {self.version or '(unknown version)'}"]
        if self.shown_for:
            known = "shown" if self.version in self.shown_for else "not among the versions shown"
            lines = [f"{lines[0]} ({known})"]
        for finding in self.findings:
            mark = "ok  " if finding.passed else "FAIL"
            observed = " ".join(finding.observed.split())
            if finding.passed and len(observed) > OBSERVED_WIDTH:
                observed = f"{observed[: OBSERVED_WIDTH - 1]}…"
            lines.append(f"{mark}  {finding.subject:<{width}}  {observed}  ({finding.source})")
        lines.extend(f"not shown: {text}" for text in self.not_shown)
        return "\n".join(lines)
