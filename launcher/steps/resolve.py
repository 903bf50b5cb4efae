"""Who is launched, as whom and where: everything that is known before memory is asked for."""

from __future__ import annotations

import functools
import os
import pwd
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING

from amux.launcher.errors import BadRequest
from amux.launcher.provider_call import held
from amux.launcher.steps.check_request import check_values
from amux.launcher.steps.continued import continued, recorded
from amux.launcher.steps.environment import RelocatedHome, base_environment
from amux.launcher.steps.executable import find_agent
from amux.launcher.steps.folders import entered, here, plain
from amux.launcher.steps.versions import VersionCache, ask_version
from amux.launcher.target import ResolvedTarget
from amux.providers.base import AgentRequest, NativeResume

if TYPE_CHECKING:
    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest
    from amux.launcher.session.store import SessionRecord, SessionStore
    from amux.launcher.target import AgentCommand
    from amux.materializer.values import Identity
    from amux.providers.base import Provider


def resolve_target(request: LaunchRequest, host: Host, sessions: SessionStore) -> ResolvedTarget:
    """Resolve provider, session, identity, folders, environment, command and version.

    Raises UnknownProvider, SessionNotFound, BadRequest, AgentNotFound, IdentityRefused.
    """
    check_values(request)
    stored = None if request.session is None else sessions.load(request.session)
    provider = host.providers.load(request.provider or (stored.provider if stored else ""))
    _check(request, stored, provider)
    native = None
    if stored is None:
        native = held(provider.find_resume, NativeResume, NoneType)(request.arguments)
    if native is not None:
        stored = sessions.by_native_id(provider.name, native.native_id)
    user = request.user or (stored.user if stored else "") or None
    identity = None if user is None else _target(user)
    private = str(request.private_home or (stored.private_home if stored else ""))
    home = _home(request, identity, private)
    command, arguments = _command(request, provider)
    cwd = str(request.cwd or (stored.cwd if stored else "") or (home if user else here()))
    # A home may have to be made first.
    cwd = os.path.realpath(cwd) if cwd == home else entered(cwd, identity)
    environment = base_environment(
        {**request.environment, "HOME": home},
        cwd=cwd,
        home=_relocated(request, identity, home if identity or private else None),
        pass_names=request.pass_names,
        folders=command.folders,
    )
    printed = ""
    if provider.executable:
        printed = VersionCache(host.versions).output(
            command,
            None if identity is None else identity.uid,
            functools.partial(ask_version, identity=identity, environment=environment, cwd=cwd),
        )
    version = held(provider.parse_version, str)(printed)
    if native is not None and stored is None:
        known = AgentRequest(
            command=command.argv,
            version=version,
            arguments=arguments,
            mode=request.mode,
            cwd=cwd,
            home=home,
            environment=environment,
        )
        native = continued(provider, known, native, identity)
        stored = None if native is None else _own_record(sessions, provider, native, user, private)
    resume = native
    if resume is None and stored is not None:
        if not stored.native_id:
            message = f"session {stored.id} {_without_conversation(stored)}; launch a new one"
            raise BadRequest(message)
        resume = NativeResume(native_id=stored.native_id, fork=request.fork)
    return ResolvedTarget(
        provider=provider,
        command=command,
        version=version,
        identity=identity,
        home=home,
        cwd=cwd,
        environment=environment,
        arguments=arguments,
        stored=stored,
        resume=resume,
        foreign=native.native_id if native is not None and stored is None else None,
    )


def _own_record(
    sessions: SessionStore,
    provider: Provider,
    native: NativeResume,
    user: str | None,
    private: str,
) -> SessionRecord | None:
    """Return the record of a conversation in this home; one of another home is not this one's."""
    found = recorded(sessions, provider, native)
    if found is None or (found.user, found.private_home) != (user or "", private):
        return None
    return found


def _home(request: LaunchRequest, identity: Identity | None, private: str) -> str:
    home = private or (identity.home if identity else request.environment.get("HOME", ""))
    if not home:
        message = "HOME is not set, and the agents keep their files there: set HOME"
        if os.environ.get("HOME"):
            message = "LaunchRequest.environment has no HOME; pass dict(os.environ)"
        raise BadRequest(message)
    return plain(home)


def _command(request: LaunchRequest, provider: Provider) -> tuple[AgentCommand, tuple[str, ...]]:
    """Find the agent's command; a provider that names none takes it from the arguments.

    Such a command may be anything, so it is not asked for a version.
    """
    name, arguments = provider.executable, request.arguments
    if not name and request.executable is None:
        if not arguments:
            message = f"name the command: amux launch {provider.name} -- COMMAND [ARGUMENT…]"
            raise BadRequest(message)
        name, *rest = arguments
        arguments = tuple(rest)
    path = request.environment.get("PATH", os.defpath)
    return find_agent(name, search_path=path, given=request.executable), arguments


def _target(user: str) -> Identity:
    # Imported here, like the trial below: most launches need neither, and start sooner.
    from amux.materializer.identity import resolve  # noqa: PLC0415

    return resolve(user)


def _relocated(
    request: LaunchRequest, identity: Identity | None, home: str | None
) -> RelocatedHome | None:
    """Return the home that the agent gets instead of the caller's own."""
    if home is None:
        return None
    if identity is not None:
        return replace(RelocatedHome.of(identity), home=home)
    account = pwd.getpwuid(os.geteuid())
    return RelocatedHome(
        home=home,
        user=account.pw_name,
        shell=account.pw_shell,
        path=request.environment.get("PATH"),
    )


def _without_conversation(stored: SessionRecord) -> str:
    if not stored.started:
        return "never got as far as a conversation"
    return (
        f"ran, but {stored.provider} in {stored.mode} mode gave amux no id of its conversation, so "
        "only the agent's own resume can continue it (without memory)"
    )


def _check(request: LaunchRequest, stored: SessionRecord | None, provider: Provider) -> None:
    """Refuse options that contradict each other or the session's record."""
    wrong = None
    unknown = sorted(set(request.options) - set(provider.options))
    if unknown:
        known = ", ".join(sorted(provider.options)) or "none"
        wrong = f"{provider.name} has no option {unknown[0]!r}; it has: {known}"
    elif request.mode not in provider.capabilities.modes:
        modes = ", ".join(sorted(provider.capabilities.modes))
        wrong = f"{provider.name} cannot run in {request.mode} mode; it can in: {modes}"
    elif request.user and request.private_home:
        wrong = "--user and --private-home exclude each other: --user has a home of its own"
    elif stored is not None and stored.provider != provider.name:
        wrong = f"session {stored.id} is one of {stored.provider}, not of {provider.name}"
    elif stored is not None and request.user and request.user != stored.user:
        was = f"user {stored.user}" if stored.user else "the caller's own account"
        wrong = f"session {stored.id} runs as {was}; it cannot be resumed as {request.user}"
    elif stored is not None and request.principal is not None:
        wrong = f"session {stored.id} has its Principal for good; leave --principal out"
    if wrong is not None:
        raise BadRequest(wrong)
