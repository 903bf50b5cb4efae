"""What memory brings to one launch: the lease, the frozen text, and the command for the agent."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub.client import HubClient
from amux.hub.connection import Connection, connection_path, load_connection
from amux.hub.errors import BindingMismatch, HubError
from amux.hub.home import agent_socket, private_socket
from amux.launcher.errors import SessionDamaged
from amux.launcher.memory.command import commands_folder, installed_command
from amux.launcher.memory.hub import HUB_SECONDS
from amux.launcher.memory.protocol import digest, load
from amux.materializer.agentside.tools import LATEST, LISTS
from amux.materializer.values import PlannedFile
from amux.providers.base import Grant, Tools

if TYPE_CHECKING:
    from amux.launcher.host import Host
    from amux.launcher.memory.binding import Lease
    from amux.launcher.session.store import SessionRecord
    from amux.launcher.target import ResolvedTarget
    from amux.materializer.values import RunPaths

CONNECTION_FILE: Final = "connection.json"
FIRST_TOOL_LIST: Final = "1"
"""What sessions got before their records named a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The text that a session keeps: decided at its first launch, used as it is ever after."""

    tools: Tools
    tool_list: str
    protocol: str
    protocol_version: str
    protocol_digest: str
    instructions: str | None
    subagent_instructions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVariables:
    """What agent-side code reads. `commands` is the folder that holds `amux` and nothing else."""

    binding: str
    cli: str
    connection: str
    commands: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A bound launch's memory: the provider's grant, the files and variables that go with it."""

    lease: Lease
    connection: Connection | None
    frozen: Frozen
    grant: Grant
    files: tuple[PlannedFile, ...]
    variables: MemoryVariables

    @property
    def local(self) -> bool:
        """Say whether the Hub that gave the credential is this home's own."""
        return self.connection is not None and not self.connection.remote


def prepare(target: ResolvedTarget, lease: Lease, host: Host, paths: RunPaths) -> Memory:
    """Put together the frozen text, the agent's connection and its command.

    Raises CommandNotUsable or InterpreterNotFound where the agent could not run the command.
    """
    frozen = _frozen(target)
    url, ca_pem = _address(target, host)
    content = _connection_file(url, lease.token or "", ca_pem, paths)
    connection = None  # a resume may have found the Hub away
    if lease.token is not None:
        connection = Connection(url=url, token=lease.token, ca_pem=ca_pem)
    files = [PlannedFile(name=CONNECTION_FILE, content=content)]
    if target.identity is None:
        installed = installed_command(host.environ.get("PATH", os.defpath))
        commands = commands_folder(host.home, installed)
        command = commands / "amux"
    else:
        # Imported here: only an isolated launch needs it.
        from amux.launcher.memory.private_command import own_copy  # noqa: PLC0415

        files.append(own_copy(target.identity, target.environment, host, paths))
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
        tool_list=frozen.tool_list,
        instructions=frozen.instructions,
        subagent_instructions=frozen.subagent_instructions,
    )
    variables = MemoryVariables(
        binding=lease.binding,
        cli=str(command),
        connection=grant.connection,
        commands=str(commands),
    )
    return Memory(
        lease=lease,
        connection=connection,
        frozen=frozen,
        grant=grant,
        files=tuple(files),
        variables=variables,
    )


def unusable(memory: Memory) -> str | None:
    """Ask the Hub as the agent will, with its credential, binding and address.

    Return why this run could not use memory, None where it could: a credential that was given out
    is no proof, since policy, binding and the agent's own socket are checked at each call.
    """
    lease = memory.lease
    if memory.connection is None:
        return lease.warning
    try:
        with HubClient(memory.connection, binding=lease.binding, seconds=HUB_SECONDS) as hub:
            enabled = hub.capability().enabled
    except BindingMismatch as error:
        return (
            f"the session's binding {lease.binding} is not valid under the Hub's policy any more "
            f"({error.message}); its memory calls will fail, so start a new conversation"
        )
    except HubError as error:
        return f"memory cannot be used in this run ({error.code}: {error.message})"
    return None if enabled else "memory is switched off on the Hub, so this run's calls will fail"


def _frozen(target: ResolvedTarget) -> Frozen:
    stored = target.stored
    if stored is not None:
        _check_frozen(stored)
        return Frozen(
            tools=Tools(stored.tools),
            tool_list=stored.tool_list or FIRST_TOOL_LIST,
            protocol=stored.protocol,
            protocol_version=stored.protocol_version,
            protocol_digest=stored.protocol_digest,
            instructions=stored.instructions,
            subagent_instructions=stored.subagent_instructions or None,
        )
    tools = target.provider.capabilities.tools
    text = load("mcp" if tools is Tools.MCP else "cli")
    return Frozen(
        tools=tools,
        tool_list=LATEST,
        protocol=text.text,
        protocol_version=text.version,
        protocol_digest=text.digest,
        instructions=None,
        subagent_instructions=None,
    )


def _check_frozen(stored: SessionRecord) -> None:
    """Raise SessionDamaged unless the texts are those that the session began with."""
    wrong, own = None, stored.subagent_instructions
    if digest(stored.protocol) != stored.protocol_digest:
        wrong = "its protocol is not the text that was frozen"
    elif stored.instructions and digest(stored.instructions) != stored.instructions_digest:
        wrong = "its instructions are not the text that was frozen"
    elif own and digest(own) != stored.subagent_instructions_digest:
        wrong = "its sub-agents' instructions are not the text that was frozen"
    elif stored.tool_list and stored.tool_list not in LISTS:
        wrong = f"it began with the tool list {stored.tool_list}, which this amux does not have"
    if wrong is not None:
        raise SessionDamaged(
            f"session {stored.id} cannot be resumed: {wrong}; launch a new one, or use the amux "
            "that made it"
        )


def _address(target: ResolvedTarget, host: Host) -> tuple[str, str | None]:
    """Return where the Hub is for the agent, and the certificates of a remote one."""
    runtime: Connection = load_connection(connection_path(host.home, "runtime"))
    if runtime.remote:
        return runtime.url, runtime.ca_pem
    if target.identity is None:
        return f"unix:{private_socket(host.home)}", None
    return f"unix:{agent_socket(host.home, host.environ, euid=os.geteuid())}", None


def _connection_file(url: str, token: str, ca_pem: str | None, paths: RunPaths) -> bytes:
    """Return the agent's connection file; `token` is empty where a resume got none.

    It also says where the run's MCP server tells that it was asked for its tools.
    """
    fields = {"schema": 1, "url": url, "token": token, "witness": str(paths.witness)}
    if ca_pem is not None:
        fields["ca_pem"] = ca_pem
    return json.dumps(fields).encode()
