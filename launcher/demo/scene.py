"""The demo's five steps, each on a real agent, each checked against the Hub's own files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.client import HubClient
from amux.hub.config import set_setting
from amux.hub.connection import connection_path
from amux.hub.local import ensure_running, stop_hub
from amux.hub.values import GetRequest
from amux.launcher.demo.scripted_models import (
    CORRECTED_WORD,
    TOPIC,
    WRONG_WORD,
    Corrector,
    Recaller,
    Rememberer,
)
from amux.launcher.errors import LaunchError
from amux.launcher.host import this_host
from amux.launcher.launch import launch
from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.stage import PATH, STAGES
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.providers.base import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amux.hub.values import Fragment
    from amux.launcher.host import Host
    from amux.launcher.probe.model import Script
    from amux.launcher.report import LaunchReport


class DemoFailed(LaunchError):
    """A step of the demo did not really happen."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One agent's part: who, what it is asked, the script that decides, and what must follow."""

    title: str
    provider: str
    prompt: str
    mind: Script
    did: str
    answer_holds: str
    document_holds: str
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one step came to. Revisions are the document's before and after, `absent` if missing."""

    step: Step
    report: LaunchReport
    answer: str
    before: str
    after: str
    seconds: float


PREFERRED: Final = {"codex": "0.153.4", "claude": "2.1.332", "pi": "0.74.2"}
"""The versions that `make demo` installs, where a folder of agents holds several."""

STEPS: Final = (
    Step(
        title="remember in Codex",
        provider="codex",
        prompt="Please remember: answer me briefly, and in British English.",
        mind=Rememberer(),
        did=f"read and wrote {TOPIC}",
        answer_holds="Saved",
        document_holds=WRONG_WORD,
        writes=True,
    ),
    Step(
        title="recall in Claude",
        provider="claude",
        prompt="In which language do I like my answers?",
        mind=Recaller(),
        did=f"searched, then read {TOPIC}",
        answer_holds=WRONG_WORD,
        document_holds=WRONG_WORD,
        writes=False,
    ),
    Step(
        title="correct from Pi",
        provider="pi",
        prompt="I moved: Canadian English from now on. Correct what you remember.",
        mind=Corrector(),
        did=f"showed and corrected {TOPIC}",
        answer_holds="Corrected",
        document_holds=CORRECTED_WORD,
        writes=True,
    ),
    Step(
        title="see it in a new Codex",
        provider="codex",
        prompt="In which language do I like my answers?",
        mind=Recaller(),
        did=f"searched, then read {TOPIC}",
        answer_holds=CORRECTED_WORD,
        document_holds=CORRECTED_WORD,
        writes=False,
    ),
)


def run_demo(
    agents: Path | None, announce: Callable[[str], None], steps: tuple[Step, ...] = STEPS
) -> tuple[Row, ...]:
    """Play all steps in a throw-away AMUX_HOME; raise DemoFailed for the first that did not happen.

    `agents` is a folder of `<name>-<version>/node_modules`; None takes the agents on PATH.
    """
    programs = {step.provider: _executable(agents, step.provider) for step in steps}
    with _stage() as (host, folder):
        rows: list[Row] = []
        for number, step in enumerate(steps, start=1):
            announce(f"[{number}/{len(steps)}] {step.title} …")
            row = _play(step, host, folder / f"step-{number}", programs[step.provider])
            rows.append(row)
            announce(f"[{number}/{len(steps)}] {step.title}: {row.seconds:.1f} s")
        return tuple(rows)


@contextlib.contextmanager
def _stage() -> Iterator[tuple[Host, Path]]:
    """Make a throw-away home with memory on and a Hub running; take it all away afterwards."""
    # Not below /tmp: Codex refuses to make its helpers there, and says so on stderr.
    folder = Path(tempfile.mkdtemp(prefix="amux-demo-", dir=_roomy()))
    environ = {
        "PATH": os.environ.get("PATH", PATH),
        "HOME": str(folder),
        "AMUX_HOME": str(folder / "amux"),
        "AMUX_RUNS": str(folder / "amux" / "runs"),
    }
    host = this_host(environ)
    try:
        set_setting(host.home, "memory.enabled", "true")
        ensure_running(host.home, host.environ)
        try:
            yield host, folder
        finally:
            stop_hub(host.home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _roomy() -> str | None:
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108  # mkdtemp below it


def _executable(agents: Path | None, provider: str) -> Path | None:
    if agents is None:
        if shutil.which(provider) is None:
            message = (
                f"no `{provider}` on PATH; install it, or name a folder of installed agents with "
                "--agents (`make agents` fills fixtures/agents)"
            )
            raise DemoFailed(message)
        return None
    wanted = agents / f"{provider}-{PREFERRED.get(provider)}"
    for folder in (wanted, *sorted(agents.glob(f"{provider}-*"))):
        found = folder / "node_modules" / ".bin" / provider
        if found.exists():
            return found
    message = f"no installed {provider} below {agents}; run `make agents`"
    raise DemoFailed(message)


def _play(step: Step, host: Host, folder: Path, executable: Path | None) -> Row:
    """Launch one agent, take one turn, end it, and check what really happened."""
    started = time.monotonic()
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    before = _document(host)
    with ScriptedModel(step.mind) as model:
        environment = STAGES[step.provider](folder / "home", model.url, path=host.environ["PATH"])
        request = LaunchRequest(
            provider=step.provider,
            arguments=_arguments(step.provider),
            mode=Mode.STREAM,
            cwd=workspace,
            environment=environment,
            executable=executable,
        )
        with launch(request, host) as run:
            answer = take_turn(
                step.provider, run.channel, step.prompt, native_id=run.report.native_id
            )
        if model.failures:
            raise DemoFailed(f"{step.title}: the scripted model broke") from model.failures[0]
    after = _document(host)
    row = Row(
        step=step,
        report=run.report,
        answer=answer,
        before=before.revision,
        after=after.revision,
        seconds=time.monotonic() - started,
    )
    _check(row, after)
    return row


def _arguments(provider: str) -> tuple[str, ...]:
    """Name the scripted model where the agent's own files do not."""
    return ("--provider", "scripted", "--model", "scripted-1") if provider == "pi" else ()


def _document(host: Host) -> Fragment:
    with HubClient.from_file(connection_path(host.home, "user")) as hub:
        return hub.get(GetRequest(path=TOPIC))


def _check(row: Row, document: Fragment) -> None:
    """Raise DemoFailed unless the effect is there: in the answer, the file and the report."""
    step = row.step
    wrong = None
    if row.report.binding is None:
        wrong = f"the launch was unbound: {row.report.unbound}"
    elif not row.report.controls:
        wrong = "the report holds no evidence that native memory is off"
    elif step.answer_holds not in row.answer:
        wrong = f"the answer does not hold {step.answer_holds!r}: {row.answer!r}"
    elif step.document_holds not in document.text:
        wrong = f"the document does not hold {step.document_holds!r}: {document.text!r}"
    elif step.writes and row.before == row.after:
        wrong = f"the document's revision stayed {row.after}"
    elif not step.writes and row.before != row.after:
        wrong = f"a read changed the document: {row.before} became {row.after}"
    if wrong is not None:
        message = f"{step.title}: {wrong}"
        raise DemoFailed(message)
