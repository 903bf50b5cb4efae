"""A target that fights the service over the only folder that it can write to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.materializer import runs
from amux.materializer.values import PlannedFile
from fixtures import accounts
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity, RunPaths
    from fixtures.accounts import Account

pytestmark = pytest.mark.root

FILES = (
    PlannedFile(name="amux", content=b"#!/bin/sh\n", executable=True),
    PlannedFile(name="connection.json", content=b"{}"),
)
RACES = 60
FEWEST = 12
RACE_DEADLINE = 20.0


@pytest.fixture(name="paths")
def _paths(root: Path, target: Identity) -> RunPaths:
    paths = runs.allocate(root)
    runs.apply(paths, FILES, target)
    return paths


@pytest.fixture(name="cut_off")
def _cut_off(root: Path, target: Identity) -> RunPaths:
    """Return a run whose service was killed."""
    code = (
        "import os, sys; from pathlib import Path; from amux.materializer import identity, runs\n"
        "paths = runs.allocate(Path(sys.argv[1]))\n"
        "runs.apply(paths, (), identity.resolve(sys.argv[2]))\n"
        "print(paths.run, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        (sys.executable, "-c", code, str(root), target.user),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return runs.reopen(Path(done.stdout.strip()))


@pytest.fixture(name="victim")
def _victim(place: Path) -> Path:
    """Make a folder of the service's that the target would like to see emptied or opened."""
    victim = place / "victim"
    victim.mkdir(mode=0o755)
    (victim / "secret").write_text("kept")
    (victim / "secret").chmod(0o600)
    (victim / "below").mkdir()
    (victim / "below" / "more").write_text("kept")
    return victim


def untouched(victim: Path) -> bool:
    info = victim.stat(), (victim / "secret").stat()
    return (
        [(each.st_uid, each.st_mode & 0o777) for each in info] == [(0, 0o755), (0, 0o600)]
        and (victim / "secret").read_text() == "kept"
        and (victim / "below" / "more").read_text() == "kept"
    )


def test_all_that_a_target_can_leave_is_removed_and_what_it_links_to_is_kept(
    root: Path, paths: RunPaths, victim: Path, as_target: Callable[[str], Trial]
) -> None:
    outcome = as_target(
        f"""cd {paths.work} && mkdir -p a/b/c closed/inner && echo x > a/b/c/file
        ln -s {victim} link && ln -s {victim} a/b/link && ln -s loop loop && mkfifo fifo
        echo x > closed/inner/file && chmod 000 closed/inner closed
        mkdir sticky && chmod 1777 sticky && echo x > sticky/file && chmod 000 sticky/file
        i=0; while [ $i -lt 500 ]; do mkdir deep && cd deep; i=$((i+1)); done
        : > "$(printf 'odd\\nname')"; chmod 0 {paths.work}"""
    )
    assert outcome.status == 0, outcome
    assert runs.remove(paths)
    assert list(root.iterdir()) == []
    assert untouched(victim)


def test_a_tree_deeper_than_any_path_or_descriptor_table_is_removed(
    root: Path, paths: RunPaths, target: Identity, target_python: str
) -> None:
    code = (
        f"import os; os.chdir({str(paths.work)!r})\n"
        "for _ in range(1200):\n    os.mkdir('deep-folder'); os.chdir('deep-folder')\n"
    )
    subprocess.run(
        (target_python, "-c", code), user=target.uid, group=target.gid, extra_groups=[], check=True
    )
    assert runs.remove(paths)
    assert list(root.iterdir()) == []


def test_a_folder_of_another_user_that_was_moved_in_is_not_emptied_for_the_target(
    place: Path, paths: RunPaths, alice: Account, bob: Account, as_target: Callable[[str], Trial]
) -> None:
    shared = place / "shared"
    shared.mkdir()
    os.chown(shared, alice.uid, alice.gid)
    theirs = shared / "of-bob"
    theirs.mkdir()
    (theirs / "document").write_text("of bob")
    theirs.chmod(0o777 | 0o1000)
    for path in (theirs, theirs / "document"):
        os.chown(path, bob.uid, bob.gid)
    assert as_target(f"mkdir {paths.work}/x && mv {theirs} {paths.work}/x/").status == 0
    told: list[str] = []
    assert not runs.remove(paths, told.append)
    (left,) = paths.run.parent.rglob("document")
    assert left.read_text() == "of bob"
    assert (left.parent.stat().st_uid, left.parent.stat().st_mode & 0o7777) == (bob.uid, 0o1777)
    (sentence,) = told
    aside = paths.run.parent / left.relative_to(paths.run.parent).parts[0]
    assert str(aside) in sentence
    assert repr(str(left.parent.relative_to(aside))) in sentence
    assert alice.name in sentence


def shared_by_root(place: Path, bob: Account) -> Path:
    """Make a folder of root's that anybody may move, with what only root and bob may remove."""
    shared = place / "shared"
    for folder, owner in (("protected/deep", 0), ("of-bob", bob.uid)):
        (shared / folder).mkdir(parents=True)
        document = shared / folder / "document"
        document.write_text("precious")
        document.chmod(0o600)
        for path in (document, document.parent):
            os.chown(path, owner, owner)
    shared.chmod(0o777)
    place.chmod(0o777)
    return shared


def move_in(
    place: Path, paths: RunPaths, bob: Account, as_target: Callable[[str], Trial], *, below: str
) -> None:
    shared = shared_by_root(place, bob)
    into = paths.work / below
    done = as_target(f"mkdir -p {into} && mv {shared} {into}/ && echo own > {paths.work}/own")
    assert done.status == 0, done
    place.chmod(0o755)


def kept_whole(root: Path) -> Path:
    """Return the folder that was moved in, wherever it lies now; hold it to be as it was."""
    documents = sorted(root.rglob("document"))
    assert [path.read_text() for path in documents] == ["precious", "precious"]
    shared = documents[0].parents[1]
    assert (shared.name, shared.stat().st_uid) == ("shared", 0)
    assert shared.stat().st_mode & 0o7777 == 0o777
    assert {path.stat().st_mode & 0o7777 for path in documents} == {0o600}
    assert not list(root.rglob("own"))
    return shared


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_folder_of_roots_that_was_moved_in_is_set_apart_and_named_and_never_emptied(  # noqa: PLR0913, PLR0917  # fixtures
    place: Path,
    root: Path,
    paths: RunPaths,
    bob: Account,
    as_target: Callable[[str], Trial],
    below: str,
) -> None:
    move_in(place, paths, bob, as_target, below=below)
    told: list[str] = []
    assert not runs.remove(paths, told.append)
    shared = kept_whole(root)
    assert shared.name in told[0]
    aside = shared.relative_to(root).parts[0]
    assert str(root / aside) in told[0]
    assert (root / aside).stat().st_mode & 0o7777 == 0o700
    assert not paths.run.exists()
    # The run's own name is free again, and no later sweep touches what is not amux's.
    runs.apply(paths, FILES, None)
    assert runs.remove(paths)
    assert runs.sweep(root) == ()
    assert kept_whole(root) == shared


def test_what_a_killed_launch_left_is_swept_as_the_target_too(
    place: Path, root: Path, cut_off: RunPaths, bob: Account, as_target: Callable[[str], Trial]
) -> None:
    move_in(place, cut_off, bob, as_target, below="a")
    told: list[tuple[Path, str]] = []
    assert runs.sweep(root, warn=lambda *said: told.append(said)) == ()
    kept_whole(root)
    assert [run for run, _ in told] == [cut_off.run]
    assert "shared" in told[0][1]


def test_a_run_that_is_built_over_one_that_was_cut_off_empties_no_folder_of_others(
    place: Path, root: Path, cut_off: RunPaths, bob: Account, as_target: Callable[[str], Trial]
) -> None:
    move_in(place, cut_off, bob, as_target, below="a")
    told: list[str] = []
    runs.apply(cut_off, FILES, None, told.append)
    kept_whole(root)
    assert "shared" in told[0]
    assert runs.remove(cut_off)


def test_the_accounts_removal_does_not_make_its_run_the_services_to_empty(
    place: Path, root: Path, bob: Account
) -> None:
    from amux.materializer import identity, trial  # noqa: PLC0415  # named like the fixtures

    with accounts.account() as gone:
        target = identity.resolve(gone.name)
        paths = runs.allocate(root)
        runs.apply(paths, FILES, target)

        def as_gone(script: str) -> Trial:
            environment = {"PATH": "/usr/bin:/bin"}
            return trial.run(("/bin/sh", "-c", script), identity=target, environment=environment)

        move_in(place, paths, bob, as_gone, below="a")
    assert not runs.remove(paths)
    kept_whole(root)


@pytest.mark.parametrize("owned", ["by the target", "by the service"])
def test_a_mount_below_the_work_folder_is_not_emptied(
    paths: RunPaths, victim: Path, target: Identity, owned: str
) -> None:
    inside = paths.work / "mounted"
    inside.mkdir()
    os.chown(inside, target.uid, target.gid)
    if owned == "by the target":
        os.chown(victim, target.uid, target.gid)
    subprocess.run(("/bin/mount", "--bind", str(victim), str(inside)), check=True)
    try:
        assert not runs.remove(paths)
        assert (victim / "secret").read_text() == "kept"
        assert (victim / "below" / "more").read_text() == "kept"
    finally:
        left = next(paths.run.parent.rglob("secret")).parent
        subprocess.run(("/bin/umount", str(left)), check=True)


def test_files_that_a_target_holds_open_give_it_no_way_back_into_a_removed_run(
    root: Path, paths: RunPaths, target: Identity, target_python: str
) -> None:
    code = (
        f"import os; os.chdir({str(paths.work)!r})\n"
        "os.mkdir('d'); folder = os.open('d', os.O_RDONLY); file = os.open('f', 65)\n"
        "print('held', flush=True); input()\n"
        "for make in (lambda: os.mkdir('x'), lambda: os.mkdir('y', dir_fd=folder)):\n"
        "    try: make(); print('made', flush=True)\n"
        "    except OSError: print('refused', flush=True)\n"
    )
    with _as(target, target_python, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert runs.remove(paths)
        output, _ = process.communicate("\n", timeout=SECONDS)
    assert output == "refused\nrefused\n"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("swapped", ["folder", "link"])
def test_a_target_that_swaps_folders_for_links_while_the_run_is_removed_hits_only_itself(
    root: Path, target: Identity, target_python: str, victim: Path, swapped: str
) -> None:
    """The classic: between looking and acting, the folder becomes a link to somewhere else."""
    code = (
        "import os, sys\n"
        "for work in map(str.strip, sys.stdin):\n"
        "    try:\n"
        "        os.chdir(work)\n"
        "        for n in range(20): os.makedirs(f'{n}/in'); open(f'{n}/in/file', 'w').close()\n"
        "        print('ready', flush=True)\n"
        "        while True:\n"
        "            for n in range(20):\n"
        f"                os.rename(f'{{n}}', f'{{n}}x'); os.symlink({str(victim)!r}, f'{{n}}')\n"
        "                os.unlink(f'{n}'); os.rename(f'{n}x', f'{n}')\n"
        if swapped == "folder"
        else "import os, sys\n"
        "for work in map(str.strip, sys.stdin):\n"
        "    try:\n"
        "        os.chdir(work)\n"
        "        print('ready', flush=True)\n"
        "        while True:\n"
        f"            os.symlink({str(victim)!r}, 'a'); os.mkdir('b'); os.rename('a', 'c')\n"
        "            os.rename('b', 'a'); os.unlink('c'); os.rmdir('a')\n"
    ) + "    except OSError: pass\n"
    until = time.monotonic() + RACE_DEADLINE
    done = 0
    with _as(target, target_python, code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while done < FEWEST or (done < RACES and time.monotonic() < until):
            paths = runs.allocate(root)
            runs.apply(paths, FILES, target)
            process.stdin.write(f"{paths.work}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            assert runs.remove(paths)
            done += 1
    assert untouched(victim)
    assert list(root.iterdir()) == []


def test_a_target_that_knows_a_path_beforehand_cannot_take_it_or_disturb_its_building(
    root: Path, paths: RunPaths, target: Identity, target_python: str
) -> None:
    """A session's path is known to its target from the first run on."""
    runs.remove(paths)
    code = (
        "import os, fcntl\n"
        "print('ready', flush=True)\n"
        f"run = {str(paths.run)!r}\n"
        "while True:\n"
        "    for act in (lambda: os.mkdir(run), lambda: os.symlink('/etc', run),\n"
        "                lambda: os.rename(run, run + 'x'), lambda: os.mkdir(run + '/work/pre'),\n"
        "                lambda: os.rmdir(run + '/work'), lambda: os.symlink('/', run + '/work'),\n"
        "                lambda: fcntl.flock(os.open(run, os.O_RDONLY), fcntl.LOCK_EX),\n"
        "                lambda: open(run + '/agent-config/memory/bin/amux', 'w')):\n"
        "        try: act()\n"
        "        except OSError: pass\n"
    )
    with _as(target, target_python, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(RACES):
            again = runs.reopen(paths.run)
            runs.apply(again, FILES, target)
            assert (again.commands / "amux").read_bytes() == FILES[0].content
            assert (again.work.lstat().st_uid, again.work.is_symlink()) == (target.uid, False)
            assert (again.run.stat().st_uid, again.run.stat().st_mode & 0o777) == (0, 0o711)
            assert runs.remove(again)
        process.kill()
    assert list(root.iterdir()) == []


def test_two_targets_reach_nothing_of_each_other(root: Path, target: Identity) -> None:
    from amux.materializer import identity, trial  # noqa: PLC0415  # named like the fixtures

    with accounts.account() as other:
        other_target = identity.resolve(other.name)
        mine, theirs = runs.allocate(root), runs.allocate(root)
        runs.apply(mine, FILES, target)
        runs.apply(theirs, FILES, other_target)
        script = f"cat {theirs.config}/connection.json || ls {theirs.work} || touch {theirs.work}/x"
        outcome = trial.run(("/bin/sh", "-c", script), identity=target, environment={})
        assert outcome.status != 0
        assert outcome.stdout == b""
        assert runs.remove(mine)
        assert runs.remove(theirs)


@contextlib.contextmanager
def _as(target: Identity, python: str, code: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        (python, "-c", code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=target.uid,
        group=target.gid,
        extra_groups=[],
        cwd="/",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
