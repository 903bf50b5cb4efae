"""What tests of a launch share: a Runtime that knows the scripted agents, and requests for them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.request import LaunchRequest
from fixtures.scripted_provider import install_scripted_agent, scripted_registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.host import Host


@pytest.fixture
def scripted(host: Host) -> Host:
    """Give a running Runtime that knows the scripted agents."""
    return replace(host, providers=scripted_registry())


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., LaunchRequest]:
    """Build requests for a scripted agent; fields are changed by keyword."""
    agent = install_scripted_agent(tmp_path / "bin")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def build(provider: str = "scripted", **changes: object) -> LaunchRequest:
        request = LaunchRequest(
            provider=provider, cwd=tmp_path, environment=environment, executable=agent
        )
        return replace(request, **changes)  # type: ignore[arg-type]

    return build
