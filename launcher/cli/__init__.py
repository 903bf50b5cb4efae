"""The commands for people and Runtimes, each imported only when it is asked for."""

from __future__ import annotations

import gc
import importlib
from typing import Final

import click

from amux.hub.secret import redact

COMMANDS: Final = {
    "credential": "Issue, list and revoke credentials of the Hub.",
    "demo": "Remember in Codex, recall in Claude, correct from Pi.",
    "hub": "Serve, inspect and stop the Hub; connect to a remote one.",
    "launch": "Start an agent with its memory bound.",
    "principal": "Add and list Principals and their aliases.",
    "probe": "Show on a real agent that its launch does what it promises.",
    "provider": "List the agents that amux knows.",
    "resume": "Continue a session with exactly the text that it was started with.",
    "sessions": "List, show, stop and prune sessions.",
    "system": "Read and change the Hub's settings.",
}

AGENT_SIDE_HELP: Final = {
    "mcp": "Serve the memory tools over MCP on stdio (agent side).",
    "memory": "Search, show, upsert, forget and export documents (agent side).",
}


INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name, the agent-side ones included."""
        del ctx
        return sorted([*COMMANDS, *AGENT_SIDE_HELP])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name in AGENT_SIDE_HELP:
            return click.Command(cmd_name, help=AGENT_SIDE_HELP[cmd_name])
        if cmd_name not in COMMANDS:
            return None
        module = "launch" if cmd_name == "resume" else cmd_name
        attribute = "resume" if cmd_name == "resume" else "command"
        loaded = getattr(importlib.import_module(f"amux.launcher.cli.{module}"), attribute)
        gc.enable()
        if not isinstance(loaded, click.Command):
            message = f"amux.launcher.cli.{module}.{attribute} is not a command"
            raise TypeError(message)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing the commands."""
        del ctx
        rows = sorted((COMMANDS | AGENT_SIDE_HELP).items())
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="amux-launcher")
def command() -> None:
    """Launch coding agents for many people with one shared, on-demand memory."""


def main() -> int:
    """Run click and return the status: 2 for a wrong call, 1 for a refusal, else the command's.

    An expected refusal is one sentence on stderr; anything else is a bug and shows its trace.
    """
    try:
        result = command.main(prog_name="amux", standalone_mode=False)
    except click.ClickException as error:
        text = redact(error.message)
        vars(error)["message"] = text  # click calls it final: only what it says is changed
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:
        if getattr(error, "code", None) is None:
            raise
        click.echo(f"amux: {redact(str(error))}", err=True)
        return 1
    return result if isinstance(result, int) else 0
