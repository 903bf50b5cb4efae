"""Put files where another user can use them, and build the agent-side CLI."""
