"""`amux launch` and `amux resume`: one agent in the foreground, with the caller's own stdio."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from amux.errors import AmuxError
from amux.hub.secret import redact
from amux.launcher.foreground import Foreground
from amux.launcher.host import this_host
from amux.launcher.launch import launch
from amux.launcher.process.pty_relay import window_size
from amux.launcher.recovery import recover
from amux.launcher.request import LaunchRequest
from amux.launcher.session.notice import Notice
from amux.launcher.session.store import SessionStore
from amux.launcher.steps.hints import AT_ONCE, ended_at_once
from amux.materializer.values import ProvidedFile
from amux.providers.base import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.host import Host
    from amux.launcher.process.spawn import ExitStatus
    from amux.launcher.run import Run

FAILED: Final = 125
SHORT_FORMS: Final = ("without-hooks",)
"""Options of providers that have a flag of their own."""
"""The exit status where amux failed, as with env(1) and timeout(1); else it is the agent's own."""
INTERRUPTED: Final = 130
"""The exit status where Ctrl-C ended the launch before there was an agent."""
EMPTY: Final = "it is empty; leave the option out, or name one (a variable may not be set)"
Decorated = TypeVar("Decorated", bound="Callable[..., None]")


def _provided_files(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> object:
    """Read each FILE:TARGET and FILE:TARGET:replace."""
    del context, parameter
    found = []
    for value in values:
        source, colon, target = value.partition(":")
        if not colon or not source or not target:
            message = f"{value!r} is not FILE:TARGET, such as ~/auth.json:.codex/auth.json"
            raise click.BadParameter(message)
        kept = target.removesuffix(":replace")
        path = Path(source).expanduser().absolute()
        found.append(ProvidedFile(source=path, target=kept, replace=kept != target))
    return tuple(found)


def _options(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> object:
    """Read each NAME or NAME=VALUE, and the provider's own flags that have a short form."""
    del parameter
    short = {name: "" for name in SHORT_FORMS if context.meta.get(f"amux.{name}")}
    return short | {name: value for name, _, value in (text.partition("=") for text in values)}


def _short_form(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"amux.{parameter.opts[0].removeprefix('--')}"] = value


def _named(context: click.Context, parameter: click.Parameter, value: object) -> object:
    """Refuse an empty text for what decides who or where: the variable behind it is not set."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter(EMPTY, context, parameter)
    return value


class NamedPath(click.Path):
    """A path; an empty one would be the current folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; fail for an empty one."""
        if not os.fspath(value):
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


def _launch_options(decorated: Decorated) -> Decorated:
    """Add the options that a launch and a resume share."""
    for option in reversed(
        (
            click.option(
                "--cwd",
                type=NamedPath(path_type=Path),
                help="The agent's folder. Default: this one; with --user the target's home.",
            ),
            click.option(
                "--env",
                "names",
                callback=_named,
                multiple=True,
                metavar="NAME",
                help="Let a variable in.",
            ),
            click.option(
                "--executable",
                type=NamedPath(path_type=Path),
                help="The agent's command, instead of the one on PATH.",
            ),
            click.option(
                "--option",
                "options",
                multiple=True,
                callback=_options,
                metavar="NAME[=VALUE]",
                help="An option of this provider alone; see `amux provider list`.",
            ),
            click.option(
                "--without-hooks",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_short_form,
                help="Codex only: switch off every hook of it (--option without-hooks).",
            ),
            click.option(
                "--require-memory", is_flag=True, help="Fail (125) rather than start without it."
            ),
            click.option(
                "--no-start-hub", is_flag=True, help="Never start a Hub; without one: no memory."
            ),
            click.option(
                "--json", "as_json", is_flag=True, help="Write events as JSON lines to stderr."
            ),
            click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        )
    ):
        decorated = option(decorated)
    return decorated


@click.command("launch")
@click.argument("provider")
@click.option(
    "--principal", callback=_named, metavar="ID|ALIAS", help="Whose memory. Default: your own."
)
@click.option("--user", callback=_named, metavar="NAME", help="Run as this UNIX user, isolated.")
@click.option(
    "--private-home",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Relocate the agent's home here (weak isolation).",
)
@click.option(
    "--provide",
    multiple=True,
    callback=_provided_files,
    metavar="FILE:TARGET[:replace]",
    help="Copy FILE to TARGET below the agent's home; what its owner wrote there is kept.",
)
@_launch_options
def command(  # noqa: PLR0913  # one parameter an option
    *,
    provider: str,
    principal: str | None,
    user: str | None,
    private_home: Path | None,
    provide: tuple[ProvidedFile, ...],
    cwd: Path | None,
    names: tuple[str, ...],
    executable: Path | None,
    options: dict[str, str],
    no_start_hub: bool,
    require_memory: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Start PROVIDER's agent with its memory bound; its own ARGUMENTS follow after `--`.

    \b
    amux launch claude -- -p "What did we decide about the release?"
    amux launch codex --principal alice

    Ends with the agent's own exit status (128 + n for signal n), or 125 when amux failed.
    """  # noqa: D301  # click wants the backspace character itself
    request = LaunchRequest(
        provider=provider,
        principal=principal,
        user=user,
        private_home=private_home.absolute() if private_home else None,
        provide=provide,
        arguments=arguments,
        cwd=cwd.absolute() if cwd else None,
        pass_names=names,
        executable=executable,
        options=options,
        start_hub=not no_start_hub,
        require_memory=require_memory,
    )
    _foreground(request, as_json=as_json)


@click.command("resume")
@click.argument("session", callback=_named)
@click.option("--fork", is_flag=True, help="Continue as a new session; this one stays as it is.")
@_launch_options
def resume(  # noqa: PLR0913  # one parameter an option
    *,
    session: str,
    fork: bool,
    cwd: Path | None,
    names: tuple[str, ...],
    executable: Path | None,
    options: dict[str, str],
    no_start_hub: bool,
    require_memory: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Continue SESSION with the binding and exactly the text that it was started with.

    SESSION is an id that `amux sessions list` shows, or the first characters of one.
    """
    request = LaunchRequest(
        session=session,
        fork=fork,
        arguments=arguments,
        cwd=cwd.absolute() if cwd else None,
        pass_names=names,
        executable=executable,
        options=options,
        start_hub=not no_start_hub,
        require_memory=require_memory,
    )
    _foreground(request, as_json=as_json)


def _foreground(request: LaunchRequest, *, as_json: bool) -> None:
    """Run the agent on the caller's stdio and end with its status."""
    terminal = os.isatty(0) and os.isatty(1)
    rows, columns = window_size()
    request = replace(
        request,
        mode=Mode.TERMINAL if terminal else Mode.PASSTHROUGH,
        environment=dict(os.environ),
        rows=rows,
        columns=columns,
        relayed=True,
    )
    try:
        with Foreground() as place:
            host = this_host(os.environ)
            notices = Notices(as_json=as_json, held=False)
            recover(host, lambda text: notices(Notice(session="", warnings=(text,))))
            if request.session is not None:
                request = replace(request, session=SessionStore(host.home).find(request.session))
            notices = Notices(as_json=as_json, held=terminal)
            with launch(request, host, stands=place.hold, heard=notices) as run:
                _tell(run, host, as_json=as_json)
                begun = time.monotonic()
                status = place.serve(run.process, run.driving)
                if status.code and time.monotonic() - begun < AT_ONCE:
                    _explain(run, request.session, host)
    except AmuxError as error:
        _refuse(error, as_json=as_json)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    notices.let_out()
    _tell_end(status, run.report.session, as_json=as_json)
    sys.exit(status.shell)


class Notices:
    """Prints what is learnt about the run; `held` until its end, where a screen would be spoilt."""

    def __init__(self, *, as_json: bool, held: bool) -> None:
        self._as_json = as_json
        self._held = held
        self._kept: list[Notice] = []
        self._lock = threading.Lock()

    def __call__(self, notice: Notice) -> None:
        """Take one notice, from any thread."""
        with self._lock:
            if self._held:
                self._kept.append(notice)
            else:
                self._print(notice)

    def let_out(self) -> None:
        """Print what was held, and from now on at once."""
        with self._lock:
            self._held = False
            for notice in self._kept:
                self._print(notice)
            self._kept.clear()

    def _print(self, notice: Notice) -> None:
        if self._as_json:
            from amux.launcher.session.events import event_of  # noqa: PLC0415  # it brings asyncio

            click.echo(json.dumps(event_of(notice).as_json(), ensure_ascii=False), err=True)
            return
        for text in notice.warnings:
            click.echo(f"amux: warning: {text}", err=True)


def _tell(run: Run, host: Host, *, as_json: bool) -> None:
    """Say what was established: all of it as JSON, to people only what they should look at."""
    if as_json:
        _event("launched", report=run.report.as_json())
        return
    for text in run.report.warnings:
        click.echo(f"amux: warning: {text}", err=True)
    if run.report.missing and _memory_on(host):
        click.echo(f"amux: {run.report.provider} lacks: {'; '.join(run.report.missing)}", err=True)


def _tell_end(status: ExitStatus, session: str, *, as_json: bool) -> None:
    """Say how the agent ended: as JSON always, to people only what it left."""
    if as_json:
        _event(
            "ended",
            code=status.code,
            signal=status.signal,
            session=session,
            survivors=status.survivors,
        )
    elif status.survivors:
        click.echo(
            f"amux: {status.survivors} processes of session {session} could not be ended; the next "
            "start of amux tries again",
            err=True,
        )


def _memory_on(host: Host) -> bool:
    """Say whether there is a memory that an agent could lack; a remote Hub has its own switch."""
    from amux.hub import config  # noqa: PLC0415  # only where something is missing
    from amux.hub.enrolment import remote_connection  # noqa: PLC0415  # same

    return remote_connection(host.home) is not None or config.load(host.home).memory_enabled


def _explain(run: Run, session: str | None, host: Host) -> None:
    """Say what to do where the agent had nothing to resume."""
    if session is None:
        return
    provider = host.providers.load(run.report.provider)
    hint = ended_at_once(provider, session, run.process.stderr_tail())
    if hint:
        click.echo(f"amux: {hint}", err=True)


def _refuse(error: Exception, *, as_json: bool) -> None:
    code = getattr(error, "code", "launch_failed")
    if as_json:
        _event("failed", code=code, message=redact(str(error)))
    else:
        click.echo(f"amux: {redact(str(error))}", err=True)


def _event(name: str, **fields: object) -> None:
    click.echo(json.dumps({"event": name, **fields}, ensure_ascii=False), err=True)
