from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from amux.materializer import identity, trial
from fixtures import accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity
    from fixtures.accounts import Account

OPEN_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="session")
def alice() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture(scope="session")
def bob() -> Iterator[Account]:
    with accounts.account() as made:
        yield made


@pytest.fixture
def target(alice: Account) -> Identity:
    return identity.resolve(alice.name)


@pytest.fixture
def place() -> Iterator[Path]:
    with accounts.reachable_folder() as folder:
        yield folder


@pytest.fixture
def root(place: Path) -> Path:
    return place / "runs"


@pytest.fixture
def as_target(target: Identity) -> Callable[[str], Trial]:
    """Run a shell script as the target and return how it ended."""

    def run(script: str) -> Trial:
        return trial.run(
            ("/bin/sh", "-c", script), identity=target, environment={"PATH": OPEN_PATH}
        )

    return run


@pytest.fixture(scope="session")
def target_python() -> str:
    """Name a Python that every user can run."""
    found = shutil.which("python3", path=OPEN_PATH)
    assert found is not None, f"these tests need a Python for every user on {OPEN_PATH}"
    return found
