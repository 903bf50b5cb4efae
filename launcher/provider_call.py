"""Call a provider: code of anybody's, whose mistakes become one error of ours that names it."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from amux.errors import AmuxError
from amux.providers.errors import ProviderFailed
from amux.providers.registry import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

"""What a provider may raise, itself or by the channel that it was handed."""


def held(
    method: Callable[Parameters, Answer], *kinds: type[object]
) -> Callable[Parameters, Answer]:
    """Return a provider's bound method that raises ProviderFailed for whatever goes wrong in it.

    That is any undocumented exception, and an answer of none of the `kinds`; none are named for a
    method that returns nothing.
    """

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        try:
            answer = method(*args, **kwargs)
        except AmuxError:
            raise
        except Exception as error:  # the outermost frame of foreign code, which may raise anything
            raise _failed(method, f"{type(error).__name__}: {error}") from error
        if kinds and not isinstance(answer, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise _failed(method, f"it returned {type(answer).__name__}, not {wanted}")
        return answer

    return call


def _failed(method: Callable[..., object], reason: str) -> ProviderFailed:
    provider = getattr(method, "__self__", None)
    name = str(getattr(provider, "name", "of no name"))
    called = getattr(method, "__name__", "a call")
    return ProviderFailed(
        f"the provider {name} ({_distribution(provider, name)}) failed in {called}: {reason}"
    )


def _distribution(provider: object, name: str) -> str:
    """Return what installed the provider; its module where nothing did."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # 10 ms that few launches need

    kind = type(provider)
    for point in entry_points(group=GROUP, name=name):
        # An entry point may name a package that only hands the class on.
        if kind.__module__.split(".")[0] == point.module.split(".")[0] and point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return f"module {kind.__module__}"
