"""The Hub's process: sockets, HTTP, and the life of one memory root.

Run it by `python -m amux.hub.server`.
"""
