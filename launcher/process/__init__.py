"""Start one agent, hold it, and end all that it started."""
