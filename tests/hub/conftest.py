from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amux.hub.local import stop_hub
from fixtures.hubs import HubHome, new_home, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hub_home(tmp_path: Path) -> Iterator[HubHome]:
    """Give a fresh home; a Hub that the test started there is ended afterwards."""
    made = new_home(tmp_path / "h")
    yield made
    made.kill()


@pytest.fixture
def on_demand(tmp_path: Path) -> Iterator[HubHome]:
    """Give a home with memory on, whose Hub starts when it is needed."""
    made = new_home(tmp_path / "h")
    made.set("memory.enabled", "true")
    yield made
    stop_hub(made.home)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubHome]:
    """Run a Hub of the test's own with memory on and isolation none."""
    with running(tmp_path / "h") as made:
        yield made


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHome]:
    """Run one Hub with memory on and isolation none for a module's tests."""
    with running(tmp_path_factory.mktemp("hub") / "h") as made:
        yield made
