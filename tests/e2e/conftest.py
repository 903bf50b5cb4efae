from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fixtures.hosts import running_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host


@pytest.fixture(scope="module")
def shared_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Give a module's tests one Runtime with memory on and a running Hub."""
    with running_host(tmp_path_factory.mktemp("runtime")) as made:
        yield made
