"""What amux keeps of each session, and what it tells of it."""
