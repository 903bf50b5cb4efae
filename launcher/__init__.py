"""The only orchestrator: request, plan, files, process, session record; and the amux command."""
