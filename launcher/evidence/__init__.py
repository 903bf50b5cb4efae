"""What a run shows of its memory while it lives, and to whom that is told."""
