"""What amux knows of each coding agent, one pure file per agent."""
