"""The Hub's process: sockets, HTTP, and the life of one memory root. Run `python -m hub.server`."""
