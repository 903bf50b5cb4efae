"""Pi: the protocol in its CLI form as one more appended text; Pi has no native memory."""

from amux.providers.pi.provider import PiProvider

__all__ = ["PiProvider"]
