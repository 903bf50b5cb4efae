"""Tests, mirroring the four packages; e2e/ runs the real agents."""
