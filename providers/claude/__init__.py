"""Claude Code: one merged append, auto memory off and confirmed, memory tools over MCP."""

from amux.providers.claude.provider import ClaudeProvider

__all__ = ["ClaudeProvider"]
