"""One conversation through the SDK's client."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import SystemPromptPreset

from amux.providers.claude_sdk.sidecar.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amux.providers.claude_sdk.sidecar.options import Options

FAILED: Final = 1
LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest line in either direction, as on an agent's own channel."""


def run(options: Options) -> int:
    """Drive the conversation until the supervisor closes our input, or Claude ends."""
    try:
        return anyio.run(_converse, options)
    except* ClaudeSDKError as errors:
        for error in errors.exceptions:
            sys.stderr.write(f"the SDK could not go on: {error}\n")
    return FAILED


async def _converse(options: Options) -> int:
    chosen = _sdk_options(options)
    relay = Relay(SubprocessCLITransport(prompt=_nothing(), options=chosen))
    client = ClaudeSDKClient(options=chosen, transport=relay)
    await client.connect()
    status = FAILED  # Claude ended by itself, unless the supervisor ends it
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, client, tasks.cancel_scope)
            lines = await _stdin()
            while line := await lines.readline():
                await _take(line, client, relay)
            status = 0
            tasks.cancel_scope.cancel()
    finally:
        await client.disconnect()
    return status


async def _stdin() -> asyncio.StreamReader:
    """Return standard input as a stream whose reading can be given up."""
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    return reader


async def _take(line: bytes, client: ClaudeSDKClient, relay: Relay) -> None:
    """Pass one line of the supervisor's on."""
    if not line.strip():
        return
    message: dict[str, Any] = json.loads(line)
    if message.get("type") == "control_request":
        await relay.ask(message)
    else:
        await client.query(_one(message))


async def _drain(client: ClaudeSDKClient, scope: anyio.CancelScope) -> None:
    """Let the SDK read on; the relay has handed the messages on already."""
    async for _ in client.receive_messages():
        pass
    scope.cancel()


async def _one(message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield message


async def _nothing() -> AsyncIterator[dict[str, Any]]:
    messages: tuple[dict[str, Any], ...] = ()
    for message in messages:
        yield message


def _sdk_options(options: Options) -> ClaudeAgentOptions:
    prompt = SystemPromptPreset(type="preset", preset="claude_code")
    if options.snapshot is not None:
        prompt["snapshot"] = options.snapshot
    if options.append is not None:
        prompt["append"] = options.append
    return ClaudeAgentOptions(
        system_prompt=prompt,
        cli_path=options.cli,
        cwd=options.cwd,
        settings=options.settings,
        mcp_servers=options.mcp_config or {},
        allowed_tools=options.allowed_tools,
        disallowed_tools=options.disallowed_tools,
        add_dirs=list(options.add_dirs),
        resume=options.resume,
        fork_session=options.fork,
        session_id=options.session_id,
        extra_args=dict(options.extra),
        max_buffer_size=LINE_BYTES,
    )
