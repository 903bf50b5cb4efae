"""What memory brings to a launch: its binding, its credential, the frozen text and the command."""
