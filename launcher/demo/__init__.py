"""The main job on three real agents: remembered in Codex, recalled in Claude, corrected from Pi."""
