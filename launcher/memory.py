"""What memory brings to one launch: the lease, the frozen text, and the command for the agent."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hub import config
from hub.client import HubClient
from hub.connection import connection_path, load_connection
from hub.enrolment import enrol_local, remote_connection
from hub.errors import MemoryDisabled
from hub.home import agent_socket, private_socket
from hub.identity import PrincipalFile
from hub.local import answers, ensure_running
from hub.values import PRINCIPAL_PREFIX
from launcher.binding import Lease, Unbound, bind_fresh, bind_stored
from launcher.environment import MemoryVariables
from launcher.errors import IsolationRefused
from launcher.installed import commands_folder, installed_command
from launcher.protocol import load
from materializer import interpreter, onefile
from materializer.tenancy import claim
from materializer.values import PlannedFile
from providers.base import Grant, Tools

if TYPE_CHECKING:
    from hub.connection import Connection
    from launcher.host import Host
    from launcher.request import LaunchRequest
    from launcher.subject import Subject
    from materializer.values import RunPaths

CONNECTION_FILE: Final = "connection.json"
HUB_SECONDS: Final = 5.0
"""How long a launch waits for one answer of the Hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The text that a session keeps: decided at its first launch, used as it is ever after."""

    tools: Tools
    protocol: str
    protocol_version: str
    protocol_digest: str
    instructions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A bound launch's memory: the provider's grant, the files and variables that go with it."""

    lease: Lease
    frozen: Frozen
    grant: Grant
    files: tuple[PlannedFile, ...]
    variables: MemoryVariables


def bind(subject: Subject, request: LaunchRequest, host: Host, *, launch: str) -> Lease | Unbound:
    """Resolve the binding: from the Hub for a fresh session, from the record for a resumed one."""
    capabilities = subject.provider.capabilities
    if subject.foreign is not None:
        return Unbound(
            f"native conversation {subject.foreign} has no record of amux; it is resumed as it is, "
            "with whatever its own memory put into it",
            warning=True,
        )
    if subject.stored is not None:
        if not subject.stored.bound:
            return Unbound("the session began without memory and stays so", warning=False)
        return bind_stored(
            lambda: _open_hub(request, host),
            launch=launch,
            principal=subject.stored.principal or None,
            binding=subject.stored.binding,
        )
    if not capabilities.memory:
        lacking = "; ".join(capabilities.missing) or "memory"
        return Unbound(f"{subject.provider.name} lacks: {lacking}", warning=False)
    return bind_fresh(lambda: _open_hub(request, host), launch=launch, principal=request.principal)


def hub_client(host: Host) -> HubClient:
    """Return a client with the Runtime's credential, for a Hub that runs already."""
    path = connection_path(host.home, "runtime")
    return HubClient.from_file(path, seconds=HUB_SECONDS)


def _open_hub(request: LaunchRequest, host: Host) -> HubClient:
    """Reach the Hub, starting the local one where that is wanted and makes sense."""
    enrol_local(host.home)
    if remote_connection(host.home) is None and not answers(host.home):
        if not config.load(host.home).memory_enabled:
            raise MemoryDisabled("memory.enabled is false")
        if request.start_hub:
            ensure_running(host.home, host.environ)
    return hub_client(host)


def check_access(subject: Subject, lease: Lease, request: LaunchRequest, host: Host) -> None:
    """Refuse a launch that could reach another Principal's memory around the Hub.

    An account serves one Principal (UidTaken). Under policy `principal`, an agent that can read
    AMUX_HOME runs for the account's own Principal only, or in a private home, which is weak.
    """
    if lease.principal is None:
        return
    if subject.identity is not None:
        claim(host.home / "accounts.json", subject.identity, lease.principal)
        return
    private = request.private_home or (subject.stored and subject.stored.private_home)
    if not lease.binding.startswith(PRINCIPAL_PREFIX) or private:
        return
    _refuse_another(lease.principal, own_principal(host), host)


def _refuse_another(principal: str, own: str | None, host: Host) -> None:
    if principal != own:
        message = (
            f"this launch for Principal {principal} would run as your own account, which "
            f"serves {own or 'no Principal'} and can read {host.home}; give it an account with "
            "--user, or accept weak isolation with --private-home"
        )
        raise IsolationRefused(message)


def check_unbound(subject: Subject, request: LaunchRequest, host: Host) -> None:
    """Refuse the same for a launch without memory: files are in reach whatever the Hub says.

    Asked for a Principal by name, that is; and only a local home tells its Principals and policy
    without a Hub.
    """
    if request.principal is None or subject.stored is not None:
        return
    if remote_connection(host.home) is not None:
        return
    own = own_principal(host)
    found = PrincipalFile(host.home / "identity").current().resolve(request.principal)
    if found is None:
        return
    if subject.identity is not None:
        claim(host.home / "accounts.json", subject.identity, found.id)
    elif not request.private_home and config.load(host.home).memory_isolation == "principal":
        _refuse_another(found.id, own, host)


def own_principal(host: Host) -> str | None:
    """Return the Principal of this account's own credential, None where the Hub knows none."""
    remote = remote_connection(host.home)
    if remote is None:
        return enrol_local(host.home)
    path = connection_path(host.home, "user")
    if not path.exists():
        return None
    with HubClient.from_file(path, seconds=HUB_SECONDS) as hub:
        binding = hub.capability().binding or ""
    return binding.removeprefix(PRINCIPAL_PREFIX) if binding.startswith(PRINCIPAL_PREFIX) else None


def prepare(subject: Subject, lease: Lease, host: Host, paths: RunPaths) -> Memory:
    """Put together the frozen text, the agent's connection and its command.

    Raises CommandNotUsable or InterpreterNotFound where the agent could not run the command.
    """
    frozen = _frozen(subject)
    connection = _agent_connection(subject, lease, host)
    files = [PlannedFile(name=CONNECTION_FILE, content=connection)]
    if subject.identity is None:
        installed = installed_command(host.environ.get("PATH", os.defpath))
        commands = commands_folder(host.home, installed)
        command = commands / "amux"
    else:
        packed = onefile.build()
        found = interpreter.find(
            paths.run.parent,
            packed,
            identity=subject.identity,
            environment=subject.environment,
            memory=host.home / "cache" / "interpreters.json",
        )
        content = interpreter.with_first_line(packed, found)
        files.append(PlannedFile(name="amux", content=content, executable=True))
        commands = paths.commands
        command = commands / "amux"
    grant = Grant(
        binding=lease.binding,
        protocol=frozen.protocol,
        tools=frozen.tools,
        cli=(str(command),),
        connection=str(paths.config / CONNECTION_FILE),
        config=str(paths.config),
        work=str(paths.work),
        instructions=frozen.instructions,
    )
    variables = MemoryVariables(
        binding=lease.binding,
        cli=str(command),
        connection=grant.connection,
        commands=str(commands),
    )
    return Memory(lease=lease, frozen=frozen, grant=grant, files=tuple(files), variables=variables)


def _frozen(subject: Subject) -> Frozen:
    stored = subject.stored
    if stored is not None:
        return Frozen(
            tools=Tools(stored.tools),
            protocol=stored.protocol,
            protocol_version=stored.protocol_version,
            protocol_digest=stored.protocol_digest,
            instructions=stored.instructions,
        )
    tools = subject.provider.capabilities.tools
    text = load("mcp" if tools is Tools.MCP else "cli")
    return Frozen(
        tools=tools,
        protocol=text.text,
        protocol_version=text.version,
        protocol_digest=text.digest,
        instructions=None,
    )


def _agent_connection(subject: Subject, lease: Lease, host: Host) -> bytes:
    """Return the agent's connection file: where the Hub is for it, and its own credential."""
    runtime: Connection = load_connection(connection_path(host.home, "runtime"))
    if runtime.remote:
        url = runtime.url
    elif subject.identity is None:
        url = f"unix:{private_socket(host.home)}"
    else:
        url = f"unix:{agent_socket(host.home, host.environ, euid=os.geteuid())}"
    fields: dict[str, object] = {"schema": 1, "url": url, "token": lease.token or ""}
    if runtime.remote and runtime.ca_pem is not None:
        fields["ca_pem"] = runtime.ca_pem
    return json.dumps(fields).encode()
