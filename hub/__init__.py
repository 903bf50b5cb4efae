"""The service that owns one memory root: store, search, identity, HTTP server and client."""
