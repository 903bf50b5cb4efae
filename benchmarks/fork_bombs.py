"""Leave fork bombs behind, as an agent of amux: python -m benchmarks.fork_bombs (as root).

Each agent fills an account with processes that go on forking, deaf to TERM, and ends
(fixtures/forks.py). Printed are the seconds from then until `amux launch` has ended, how many
processes of the account are alive 5 s later, and how many would be without amux. `own`: amux and
agent are of one account, and share its limit of processes; `isolated`: root launches with --user.
Each with a control group where the machine has cgroup v2, and without.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from amux.launcher.process import cgroup
from fixtures import accounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures.accounts import Account

TREE: Final = Path(__file__).parents[1]
BOMB: Final = (TREE / "fixtures" / "forks.py").read_text(encoding="utf-8")
LIMITS: Final = (100, 400, 1500)
LIFE: Final = 90
"""Seconds that a bomb lives by itself, should everything else fail."""
LATER: Final = 5.0
WITHOUT_GROUP: Final = """
from amux.launcher.process import cgroup
cgroup.make = lambda name: ""
"""
AMUX: Final = "from amux.launcher.command import main\nraise SystemExit(main())\n"
KILL_ALL: Final = "import os, signal; os.kill(-1, signal.SIGKILL)"


def living(uid: int) -> int:
    """Count an account's processes that run."""
    count = 0
    for process in psutil.process_iter(["uids", "status"]):
        uids, status = process.info["uids"], process.info["status"]
        count += uids is not None and uids.real == uid and status != psutil.STATUS_ZOMBIE
    return count


@contextlib.contextmanager
def bombed() -> Iterator[Account]:
    """Make an account that loses all of its processes at once at the end, whatever they do."""
    with accounts.account() as account:
        try:
            yield account
        finally:
            while living(account.uid):
                subprocess.run(
                    ("/usr/bin/python3", "-I", "-S", "-c", KILL_ALL),
                    user=account.uid,
                    group=account.gid,
                    extra_groups=[],
                    check=False,
                )


@contextlib.contextmanager
def delegated(account: Account) -> Iterator[str]:
    """Make a control group that the account may divide; empty where there is no cgroup v2."""
    parent = cgroup.own_folder()
    if not parent:
        yield ""
        return
    folder = Path(parent) / f"bench-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
            os.chown(path, account.uid, account.gid)
        yield str(folder)
    finally:
        cgroup.end(str(folder))
        while cgroup.populated(str(folder)):
            time.sleep(0.05)
        cgroup.remove(str(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a bomb is launched."""

    own: bool
    grouped: bool

    @property
    def name(self) -> str:
        """Say it in a few words."""
        return f"{'own' if self.own else 'isolated'}, {'' if self.grouped else 'no '}control group"


def bomb(limit: int) -> list[str]:
    """Return the agent's command."""
    return ["/usr/bin/python3", "-I", "-S", "-c", BOMB, str(limit), str(LIFE)]


def become(account: Account, limit: int, folder: str) -> list[str]:
    """Return what makes a command the account's, with a limit for both, in a group of its own."""
    join = f'echo $$ > {folder}/cgroup.procs && exec "$@"' if folder else 'exec "$@"'
    who = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
    # A checkout may be closed to others; no limit and no signal asks for this one.
    who += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [
        "/bin/sh", "-c", join, "sh",
        "/usr/bin/setpriv", *who, "/usr/bin/prlimit", f"--nproc={limit}", "--",
    ]  # fmt: skip


def with_amux(limit: int, kind: Kind) -> tuple[float, int, str]:
    """Return the seconds that it took, how many are alive 5 s later, and what amux said."""
    with contextlib.ExitStack() as stack:
        account = stack.enter_context(bombed())
        place = stack.enter_context(accounts.reachable_folder())
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "AMUX_HOME": str(place / "amux"),
            "AMUX_RUNS": str(place / "runs"),
            "PYTHONPATH": str(TREE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        script = ("" if kind.grouped else WITHOUT_GROUP) + AMUX
        command = [sys.executable, "-c", script, "launch", "generic"]
        if kind.own:
            os.chown(place, account.uid, account.gid)
            folder = stack.enter_context(delegated(account)) if kind.grouped else ""
            command = [*become(account, limit, folder), *command]
        else:
            command += ["--user", account.name]
        took, said = until_ended([*command, "--", *bomb(limit)], environment)
        time.sleep(LATER)
        return took, living(account.uid), said


def without(limit: int) -> int:
    """Return how many are alive 5 s after a bomb whose process group was killed."""
    with bombed() as account:
        command = [*become(account, limit, ""), *bomb(limit)]
        environment = {"PATH": os.environ["PATH"]}
        until_ended(command, environment)
        time.sleep(LATER)
        return living(account.uid)


def until_ended(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Run a command, and kill its group; return seconds from `ready` to its end, and stderr."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        if process.stdout is None:
            raise RuntimeError("no pipe")
        if process.stdout.readline() != b"ready\n":
            errors.seek(0)
            raise RuntimeError(f"the bomb did not go off: {errors.read().decode()}")
        began = time.monotonic()
        try:
            process.wait(2 * LIFE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        took = time.monotonic() - began
        errors.seek(0)
        return took, errors.read().decode().strip()


def main() -> int:
    """Print a line for each bomb; end with 1 where something of one was alive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("limits", type=int, nargs="*", default=LIMITS)
    options = parser.parse_args()
    worst = 0
    for limit in options.limits:
        print(f"limit {limit}: its group killed instead: {without(limit)} alive", flush=True)
        for own, grouped in ((True, True), (True, False), (False, True), (False, False)):
            kind = Kind(own=own, grouped=grouped)
            took, alive, said = with_amux(limit, kind)
            worst = max(worst, alive)
            print(f"  {kind.name}: {took:.1f} s, {alive} alive  {said}", flush=True)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
