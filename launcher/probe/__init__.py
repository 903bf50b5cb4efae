"""Run a real agent against a scripted model on loopback and print what was seen."""
