"""The code that runs beside an agent: the memory commands and the MCP server.

It stands alone: the standard library from Python 3.9 on and nothing else of ours, so that
`amux.materializer.onefile` can pack it into one file for a user who can read no other part of
amux. Importing this package imports nothing.
"""

VERSION = "0.1.0"

__all__ = ["VERSION"]
