"""Claude through its Python SDK: the terminal agent's plan, carried out by a sidecar process."""

from amux.providers.claude_sdk.provider import ClaudeSdkProvider

__all__ = ["ClaudeSdkProvider"]
