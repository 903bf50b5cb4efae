"""The process that drives Claude through `claude-agent-sdk` for a supervisor, in JSON lines.

It runs beside the agent, on amux's own interpreter, and is no part of amux's process: of its
modules only `options` is imported there. The `claude-sdk` provider starts it with `options.Options`
as JSON, or with the name of a file that holds it.
Lines in: user messages and control requests, as Claude's own stream-json has them. Lines out:
everything that Claude says, as it says it, less what is between the SDK and Claude alone.
Needs `amux-launcher[claude-sdk]`.
"""
