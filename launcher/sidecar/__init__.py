"""The process that drives Claude through `claude-agent-sdk` for a supervisor, in JSON lines.

It is started by the `claude-sdk` provider with the name of one JSON file (`options.Options`).
Lines in: user messages and control requests, as Claude's own stream-json has them. Lines out:
everything that Claude says, as it says it, less what is between the SDK and Claude alone.
Needs `amux[claude-sdk]`.
"""
