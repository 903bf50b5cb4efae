"""The probe, on the sidecar: the acceptance test that any provider has to pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import staged

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host

pytestmark = pytest.mark.agents


def test_the_probe_passes_for_the_sidecar_too(tmp_path: Path, host: Host) -> None:
    version = CLAUDE_VERSIONS[-1]
    with staged(tmp_path, host, "claude", version, provider="claude-sdk") as stage:
        done, _ = stage.amux("probe", "claude-sdk", "--executable", str(stage.executable))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[0] == f"claude-sdk {version}"
    assert not [line for line in lines[1:] if not line.startswith(("ok ", "not shown: "))]
