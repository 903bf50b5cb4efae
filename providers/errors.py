"""Errors of providers.

ProviderError
├── UnknownProvider    no entry point of that name, or one that failed to load
├── ProviderFailed     a provider's own code raised, or returned what it must not
├── UnknownVersion     what the agent printed holds no version
├── UnsupportedVersion the guarantees of a bound launch were not shown for this version
├── NotConfirmed       the agent's own answer does not say that native memory is off
├── ToolsNotLoaded     the agent could not load the memory tools that it was given
├── Silence            the agent sent no message within the deadline
├── RequestRefused     the agent answered a request on its channel with an error
├── BadArguments       the caller's own arguments cannot be merged with ours
└── UnsupportedMode    the provider cannot run the agent in this mode
"""

from __future__ import annotations

from typing import ClassVar

from amux.errors import AmuxError


class ProviderError(AmuxError):
    """Say what was found and what to do; `code` is stable."""

    code: ClassVar[str] = "provider"


class UnknownProvider(ProviderError):
    """No provider of that name can be loaded."""

    code = "unknown_provider"


class ProviderFailed(ProviderError):
    """A provider's own code raised something undocumented, or returned what it must not."""

    code = "provider_failed"


class UnknownVersion(ProviderError):
    """What the agent printed holds no version."""

    code = "unknown_version"


class UnsupportedVersion(ProviderError):
    """The guarantees of a bound launch were not shown for this version."""

    code = "unsupported_version"


class NotConfirmed(ProviderError):
    """The agent's own answer does not say that its native memory is off; `answer` holds it."""

    code = "native_memory_not_confirmed"

    def __init__(self, message: str, *, answer: str) -> None:
        super().__init__(f"{message}; the agent answered: {answer}")
        self.answer = answer


class ToolsNotLoaded(ProviderError):
    """The agent could not load the memory tools that it was given."""

    code = "memory_tools_not_loaded"


class Silence(ProviderError):
    """The agent sent no message within the deadline; channels raise it."""

    code = "silence"
    retryable = True


class RequestRefused(ProviderError):
    """The agent answered a request on its channel with an error; channels raise it."""

    code = "request_refused"

    def __init__(self, method: str, *, number: int, answer: str) -> None:
        super().__init__(f"the agent refused {method} ({number}): {answer}")
        self.method = method
        self.number = number
        self.answer = answer


class BadArguments(ProviderError):
    """The caller's own arguments cannot be merged with the launch's."""

    code = "bad_arguments"


def require_utf8(option: str, text: str) -> str:
    """Return the text; raise BadArguments where its bytes are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadArguments(f"the value of {option} is not UTF-8") from error
    return text


def require_utf8_folder(agent: str, folder: str) -> None:
    """Raise BadArguments for a folder whose name is not UTF-8, in which this agent cannot start."""
    try:
        folder.encode()
    except UnicodeEncodeError as error:
        name = folder.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise BadArguments(
            f"{agent} cannot start in {name}, whose name is not UTF-8; rename the folder, or name "
            "another one (cwd)"
        ) from error


class UnsupportedMode(ProviderError):
    """The provider cannot run the agent in this mode."""

    code = "unsupported_mode"
