"""Fixtures that every part's tests may use."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from fixtures.hosts import make_host, running_host
from tests.keeper import pytest_cmdline_main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host


__all__ = ["pytest_cmdline_main"]

# How long an example takes says how busy the machine is.
settings.register_profile("amux", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amux")


def pytest_configure() -> None:
    """Take the signals that nohup or a shell's background job has made processes ignore.

    What the tests start would inherit that, and amux keeps it on purpose.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Give a Runtime with memory on and a running Hub."""
    with running_host(tmp_path / "host") as made:
        yield made


@pytest.fixture
def quiet_host(tmp_path: Path) -> Host:
    """Give a Runtime with memory on whose Hub does not run."""
    return make_host(tmp_path / "host")
