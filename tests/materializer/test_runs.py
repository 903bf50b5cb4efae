from __future__ import annotations

import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.materializer import runs, trial
from amux.materializer.errors import NotPlaced, RootUnsafe, RunInUse
from amux.materializer.values import PlannedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity
    from fixtures.accounts import Account

CLI = PlannedFile(name="amux", content=b"#!/bin/sh\necho ran\n", executable=True)
CONNECTION = PlannedFile(name="connection.json", content=b"{}")
MOUNT = "/bin/mount"
UMOUNT = "/bin/umount"
FILES = (CLI, CONNECTION)


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in [folder, *folder.rglob("*")]:
        info = path.lstat()
        name = str(path.relative_to(folder))
        found[name] = (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
    return found


def expected(identity: Identity | None) -> dict[str, tuple[int, int, int]]:
    ours = (os.geteuid(), os.getegid())
    theirs = ours if identity is None else (identity.uid, identity.gid)
    lent = 0o400 if identity is None else 0o440
    return {
        ".": (0o711, *ours),
        "agent-config": (0o711, *ours),
        "agent-config/memory": (0o711, *ours),
        "agent-config/memory/bin": (0o711, *ours),
        "agent-config/memory/bin/amux": (0o555, *ours),
        "agent-config/memory/connection.json": (lent, *ours),
        "work": (0o700, *theirs),
    }


@pytest.fixture(name="umask", params=[0o000, 0o022, 0o777])
def _umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_plain_run_is_the_callers_own_whatever_the_umask(tmp_path: Path) -> None:
    paths = runs.allocate(tmp_path / "runs")
    manifest = runs.apply(paths, FILES, None)
    assert tree(paths.run) == expected(None)
    assert [entry.path for entry in manifest.entries] == [
        paths.commands / "amux",
        paths.config / "connection.json",
    ]
    assert (paths.commands / "amux").read_bytes() == CLI.content
    assert runs.remove(paths)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.root
@pytest.mark.usefixtures("umask")
def test_a_run_for_a_target_has_the_documented_owners_and_modes(
    root: Path, target: Identity
) -> None:
    paths = runs.allocate(root)
    runs.apply(paths, FILES, target)
    assert tree(paths.run) == expected(target)
    assert runs.remove(paths)


@pytest.mark.root
def test_default_acls_and_setgid_on_the_root_reach_nothing_of_a_run(
    root: Path, target: Identity, bob: Account
) -> None:
    root.mkdir(mode=0o711)
    os.chown(root, 0, bob.gid)
    root.chmod(0o2711)
    os.setxattr(root, "system.posix_acl_default", default_acl(bob.uid))
    paths = runs.allocate(root)
    runs.apply(paths, FILES, target)
    assert tree(paths.run) == expected(target)
    for path in [paths.run, *paths.run.rglob("*")]:
        own = {"system.posix_acl_access"} if path.name == CONNECTION.name else set()
        assert {name for name in os.listxattr(path) if "acl" in name} == own
    readers = os.getxattr(paths.config / CONNECTION.name, "system.posix_acl_access")
    assert bob.uid not in {uid for _, _, uid in struct.iter_unpack("<HHI", readers[4:])}
    runs.remove(paths)


def default_acl(uid: int) -> bytes:
    """Encode `u::rwx,u:UID:rwx,g::rwx,m::rwx,o::rwx` as the kernel keeps it."""
    nobody = 0xFFFFFFFF
    entries = [(1, 7, nobody), (2, 7, uid), (4, 7, nobody), (16, 7, nobody), (32, 7, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.root
def test_the_target_reads_its_files_runs_its_command_and_writes_only_to_work(
    root: Path, target: Identity, as_target: Callable[[str], Trial]
) -> None:
    paths = runs.allocate(root)
    other = runs.allocate(root)
    runs.apply(paths, FILES, target)
    runs.apply(other, FILES, None)
    outcome = as_target(
        f"cat {paths.config}/connection.json && {paths.commands}/amux && touch {paths.work}/made"
    )
    assert (outcome.status, outcome.stdout) == (0, b"{}ran\n")
    for refused in (
        f"ls {root}",
        f"ls {paths.run}",
        f"ls {paths.commands}",
        f"cat {other.config}/connection.json",
        f"touch {paths.run}/x",
        f"touch {paths.config}/x",
        f"touch {paths.commands}/x",
        f"echo x > {paths.commands}/amux",
        f"echo x > {paths.config}/connection.json",
        f"chmod 600 {paths.config}/connection.json",
        f"rm -f {paths.config}/connection.json",
        f"mv {paths.work} {paths.run}/elsewhere",
        f"ln -s / {root}/link",
        f"chmod 777 {paths.run}",
    ):
        assert as_target(refused).status != 0, refused
    assert tree(paths.run).keys() == {*expected(target), "work/made"}
    assert runs.remove(paths)
    assert runs.remove(other)


@pytest.mark.root
def test_a_file_of_a_run_is_read_by_its_target_alone(
    root: Path, target: Identity, bob: Account
) -> None:
    paths = runs.allocate(root)
    runs.apply(paths, FILES, target)
    # Somebody who shares every group with the target, and the service's own group.
    other = replace(target, uid=bob.uid, user=bob.name, groups=(*target.groups, target.gid, 0))
    command = ("/bin/cat", str(paths.config / CONNECTION.name))
    assert trial.run(command, identity=target, environment={}).stdout == CONNECTION.content
    assert trial.run(command, identity=other, environment={}).status != 0
    assert runs.remove(paths)


@pytest.mark.root
def test_without_acls_a_file_is_the_targets_own(
    root: Path, target: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(fd: int, name: str, value: bytes) -> None:
        raise OSError(errno.EOPNOTSUPP, name, value.hex(), fd)

    monkeypatch.setattr(os, "setxattr", without)
    paths = runs.allocate(root)
    runs.apply(paths, FILES, target)
    found = (paths.config / CONNECTION.name).stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (target.uid, 0o400)
    assert runs.remove(paths)


def test_names_are_random_and_nothing_is_made_before_files_are_put_there(tmp_path: Path) -> None:
    names = {runs.allocate(tmp_path / "runs").run.name for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) == 32 for name in names)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "bin", "nul\0"])
def test_a_file_name_that_is_not_one_segment_of_its_own_is_refused(
    tmp_path: Path, name: str
) -> None:
    paths = runs.allocate(tmp_path / "runs")
    with pytest.raises(NotPlaced):
        runs.apply(paths, (CLI, PlannedFile(name=name, content=b"")), None)
    assert list(tmp_path.iterdir()) == []


def test_a_run_keeps_its_path_over_resumes_and_is_built_anew_each_time(tmp_path: Path) -> None:
    first = runs.allocate(tmp_path / "runs")
    runs.apply(first, FILES, None)
    (first.work / "left").write_text("of the first run")
    assert runs.remove(first)
    assert runs.remove(first)
    again = runs.reopen(first.run)
    assert again == first
    runs.apply(again, FILES, None)
    assert tree(again.run) == expected(None)
    runs.remove(again)


@pytest.mark.parametrize("path", ["relative", "/etc", "/srv/runs/UPPER", "/x/../" + "a" * 31])
def test_only_the_folder_of_a_run_can_be_reopened(path: str) -> None:
    with pytest.raises(RootUnsafe):
        runs.reopen(Path(path))


def test_a_run_that_is_live_is_neither_built_over_nor_swept(tmp_path: Path) -> None:
    paths = runs.allocate(tmp_path / "runs")
    runs.apply(paths, FILES, None)
    with pytest.raises(RunInUse):
        runs.apply(runs.reopen(paths.run), FILES, None)
    assert runs.sweep(tmp_path / "runs") == ()
    assert tree(paths.run) == expected(None)
    runs.remove(paths)


def test_what_a_killed_process_left_is_swept_or_built_over(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    killed = [_apply_elsewhere(root) for _ in range(3)]
    assert runs.sweep(root) == ()
    for _, process in killed:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    kept, rebuilt, swept = (path for path, _ in killed)
    runs.apply(runs.reopen(rebuilt), (CONNECTION,), None)
    assert runs.sweep(root, [kept]) == (swept,)
    assert {path.name for path in root.iterdir()} == {kept.name, rebuilt.name}
    runs.remove(runs.reopen(rebuilt))
    assert runs.sweep(root) == (kept,)


def _apply_elsewhere(root: Path) -> tuple[Path, subprocess.Popen[str]]:
    code = (
        "import sys; from pathlib import Path; from amux.materializer import runs; "
        "paths = runs.allocate(Path(sys.argv[1])); runs.apply(paths, (), None); "
        "print(paths.run, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        (sys.executable, "-c", code, str(root)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return Path(process.stdout.readline().strip()), process


def test_a_half_built_or_half_removed_run_is_swept_and_strangers_are_left(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir(mode=0o711)
    (root / f".new-{'a' * 32}").mkdir()
    (root / f".dead-{'b' * 32}" / "work" / "deep").mkdir(parents=True)
    (root / "operators-notes").mkdir()
    (root / ("c" * 32)).symlink_to(tmp_path)
    assert len(runs.sweep(root)) == 2
    assert {path.name for path in root.iterdir()} == {"operators-notes", "c" * 32}
    assert runs.sweep(tmp_path / "missing") == ()


def test_a_hundred_runs_at_once_share_nothing(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    failures: list[BaseException] = []

    def one() -> None:
        try:
            for _ in range(10):
                paths = runs.allocate(root)
                runs.apply(paths, FILES, None)
                assert tree(paths.run) == expected(None)
                runs.sweep(root)
                assert runs.remove(paths)
        except (OSError, AssertionError, NotPlaced, RunInUse) as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(root.iterdir()) == []


def test_a_root_that_others_can_list_or_write_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    for mode in (0o755, 0o733, 0o1777):
        root.chmod(mode)
        with pytest.raises(RootUnsafe, match=f"{mode:04o}"):
            runs.apply(runs.allocate(root), FILES, None)
        assert list(root.iterdir()) == []


@pytest.mark.root
def test_a_root_that_belongs_to_or_lies_below_somebody_else_is_refused(
    place: Path, target: Identity, alice: Account
) -> None:
    theirs = place / "theirs"
    theirs.mkdir(mode=0o711)
    os.chown(theirs, alice.uid, alice.gid)
    inside = theirs / "root"
    inside.mkdir(mode=0o711)
    for root in (theirs, inside, theirs / "made"):
        with pytest.raises(RootUnsafe, match=f"belongs to uid {alice.uid}"):
            runs.apply(runs.allocate(root), FILES, target)
    assert {path.name for path in theirs.iterdir()} == {"root"}


@pytest.mark.root
def test_a_root_that_the_target_cannot_reach_is_refused(place: Path, target: Identity) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(RootUnsafe, match=r"cannot pass through .*closed: .*set AMUX_RUNS"):
        runs.apply(runs.allocate(closed / "runs"), FILES, target)


@pytest.mark.root
def test_a_link_in_the_place_of_the_root_is_never_followed(place: Path, target: Identity) -> None:
    victim = place / "victim"
    victim.mkdir(mode=0o711)
    paths = runs.allocate(place / "runs")
    paths.run.parent.symlink_to(victim)
    with pytest.raises(RootUnsafe):
        runs.apply(paths, FILES, target)
    assert list(victim.iterdir()) == []


@pytest.fixture(name="small_mount")
def _small_mount(place: Path) -> Iterator[Path]:
    mount = place / "mount"
    mount.mkdir()
    options = "size=128k,mode=711"
    subprocess.run((MOUNT, "-t", "tmpfs", "-o", options, "tmpfs", str(mount)), check=True)
    yield mount
    subprocess.run((UMOUNT, "-l", str(mount)), check=True)


@pytest.mark.root
def test_a_full_disk_fails_the_launch_leaves_nothing_and_heals(
    small_mount: Path, target: Identity, as_target: Callable[[str], Trial]
) -> None:
    root = small_mount / "runs"
    first = runs.allocate(root)
    runs.apply(first, FILES, target)
    assert as_target(f"head -c 1000000 /dev/zero > {first.work}/full").status != 0
    second = runs.allocate(root)
    with pytest.raises(NotPlaced, match="No space left"):
        runs.apply(second, (CLI, PlannedFile(name="big", content=b"x" * 65_536)), target)
    assert [path.name for path in root.iterdir()] == [first.run.name]
    assert runs.remove(first)
    runs.apply(second, FILES, target)
    assert runs.remove(second)


@pytest.mark.root
def test_a_mount_with_noexec_is_refused_with_what_to_do(
    small_mount: Path, target: Identity
) -> None:
    subprocess.run((MOUNT, "-o", "remount,noexec", str(small_mount)), check=True)
    with pytest.raises(RootUnsafe, match=r"noexec.*AMUX_RUNS"):
        runs.apply(runs.allocate(small_mount / "runs"), FILES, target)
