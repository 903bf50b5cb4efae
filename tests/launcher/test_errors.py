"""One root for what amux raises on purpose."""

from __future__ import annotations

import pytest

import amux
import amux.hub.errors
import amux.launcher.errors
import amux.materializer.errors
import amux.providers.errors

FAMILIES = (
    amux.hub.errors.HubError,
    amux.launcher.errors.LaunchError,
    amux.materializer.errors.MaterializeError,
    amux.providers.errors.ProviderError,
)


def descendants(family: type[amux.AmuxError]) -> list[type[amux.AmuxError]]:
    found = [family]
    for kind in family.__subclasses__():
        found += descendants(kind)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_error_has_the_root_and_a_code_of_its_own(family: type[amux.AmuxError]) -> None:
    assert issubclass(family, amux.AmuxError)
    kinds = [kind for kind in descendants(family) if kind.__module__ == family.__module__]
    codes = [kind.code for kind in kinds if "code" in vars(kind)]
    assert len(set(codes)) == len(codes)
    assert amux.AmuxError.code not in codes


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (amux.hub.errors.Unavailable, True),
        (amux.launcher.errors.SessionRunning, True),
        (amux.hub.errors.Conflict, False),
        (amux.launcher.errors.BadRequest, False),
    ],
)
def test_what_may_succeed_later_says_so_and_a_mistake_does_not(
    kind: type[amux.AmuxError], *, retryable: bool
) -> None:
    assert kind.retryable is retryable
