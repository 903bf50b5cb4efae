from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.materializer import filerequests, homefiles, targetfiles
from amux.materializer.errors import NotProvided
from amux.materializer.plainfile import NotPlain, read_plain_file
from amux.materializer.values import ProvidedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity
    from fixtures.accounts import Account

pytestmark = pytest.mark.root


@pytest.fixture(name="source")
def _source(place: Path) -> Path:
    source = place / "auth.json"
    source.write_text('{"of": "the service"}')
    source.chmod(0o600)
    return source


@pytest.fixture(autouse=True)
def _clean_home(alice: Account) -> None:
    for path in alice.home.iterdir():
        if path.is_dir() and not path.is_symlink():
            for below in sorted(path.rglob("*"), reverse=True):
                below.rmdir() if below.is_dir() and not below.is_symlink() else below.unlink()
            path.rmdir()
        else:
            path.unlink()


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    info = path.lstat()
    return info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)


def test_named_files_arrive_with_the_targets_owner_and_closed_modes_and_nothing_else(
    target: Identity, alice: Account, source: Path
) -> None:
    before = os.umask(0)
    try:
        made = homefiles.provide(
            target,
            target.home,
            folders=(".pi/agent",),
            files=(
                ProvidedFile(source=source, target=".codex/auth.json"),
                ProvidedFile(source=source, target=f"{target.home}/absolute"),
                ProvidedFile(source=source, target="~/tilde"),
            ),
        )
    finally:
        os.umask(before)
    assert made.made == (".pi", ".pi/agent", ".codex", ".codex/auth.json", "absolute", "tilde")
    for folder in (".codex", ".pi", ".pi/agent"):
        assert owner_and_mode(alice.home / folder) == (alice.uid, alice.gid, 0o700)
    for file in (".codex/auth.json", "absolute", "tilde"):
        assert owner_and_mode(alice.home / file) == (alice.uid, alice.gid, 0o600)
        assert (alice.home / file).read_bytes() == source.read_bytes()
    assert len(list(alice.home.rglob("*"))) == 6


def test_what_exists_is_kept_as_folder_and_replaced_as_file_where_that_is_said(
    target: Identity, alice: Account, source: Path, as_target: Callable[[str], Trial]
) -> None:
    as_target(f"mkdir -m 755 {alice.home}/.codex; echo old > {alice.home}/.codex/auth.json")
    assert homefiles.provide(target, target.home, folders=(".codex",)).made == ()
    copy = ProvidedFile(source=source, target=".codex/auth.json", replace=True)
    assert homefiles.provide(target, target.home, files=(copy,)).made == (".codex/auth.json",)
    assert owner_and_mode(alice.home / ".codex") == (alice.uid, alice.gid, 0o755)
    assert (alice.home / ".codex" / "auth.json").read_bytes() == source.read_bytes()


def test_a_file_that_its_owner_has_rewritten_is_kept_and_one_of_ours_replaced(
    target: Identity, alice: Account, source: Path, as_target: Callable[[str], Trial]
) -> None:
    file = alice.home / "auth.json"
    known: dict[str, str] = {}

    def provide() -> tuple[bool, bool]:
        copy = ProvidedFile(source=source, target="auth.json")
        done = homefiles.provide(target, target.home, files=(copy,), known=known, account="7:")
        known.update(done.digests)
        return bool(done.made), bool(done.kept)

    assert provide() == (True, False)
    assert list(known) == [f"7:{file}"]
    first = file.stat().st_ino
    assert provide() == (False, False)  # it is there already
    assert file.stat().st_ino == first
    source.write_text("newer")
    assert provide() == (True, False)
    assert file.read_text() == "newer"
    as_target(f"printf refreshed > {file}")
    assert provide() == (False, True)
    source.write_text("newest")
    assert provide() == (False, True)
    assert file.read_text() == "refreshed"
    known.clear()  # what amux knows was lost
    assert provide() == (False, True)
    as_target(f"rm {file}; mkdir {file}")
    assert provide() == (False, True)
    as_target(f"rmdir {file}")
    assert provide() == (True, False)


@pytest.mark.parametrize("link", [".codex", ".codex/auth.json"])
def test_a_link_in_the_home_leads_nothing_out_of_it(  # noqa: PLR0913, PLR0917  # fixtures
    place: Path,
    target: Identity,
    alice: Account,
    source: Path,
    as_target: Callable[[str], Trial],
    link: str,
) -> None:
    victim = place / "victim"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    (victim / "auth.json").write_text("kept")
    aim = victim if link == ".codex" else victim / "auth.json"
    as_target(f"cd {alice.home}; [ {link} = .codex ] || mkdir .codex; ln -s {aim} {link}")
    copy = ProvidedFile(source=source, target=".codex/auth.json")
    if link == ".codex":
        with pytest.raises(NotProvided, match="links are not used"):
            homefiles.provide(target, target.home, files=(copy,))
    else:
        assert homefiles.provide(target, target.home, files=(copy,)).kept == (link,)
        assert (alice.home / link).is_symlink()
        homefiles.provide(target, target.home, files=(replace(copy, replace=True),))
        assert not (alice.home / link).is_symlink()
    assert (victim / "auth.json").read_text() == "kept"
    assert len(list(victim.iterdir())) == 1


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "a\0read\0/etc/shadow", "../x", "a/../../x", "", "~/", "/"]
)
def test_a_place_outside_the_home_is_refused(target: Identity, source: Path, name: str) -> None:
    with pytest.raises(NotProvided, match="not a path below the target's home"):
        homefiles.provide(target, target.home, files=(ProvidedFile(source=source, target=name),))


def test_only_a_small_regular_file_of_the_services_own_is_a_source(
    place: Path, target: Identity, alice: Account, source: Path, as_target: Callable[[str], Trial]
) -> None:
    def provide(path: Path) -> None:
        homefiles.provide(target, target.home, files=(ProvidedFile(source=path, target="copy"),))

    (place / "folder").mkdir()
    with pytest.raises(NotProvided, match="never a whole folder"):
        provide(place / "folder")
    with pytest.raises(NotProvided, match=f"{place.parent} is writable for others"):
        provide(place)
    os.mkfifo(place / "fifo")
    with pytest.raises(NotProvided, match="not a regular file"):
        provide(place / "fifo")
    with pytest.raises(NotProvided, match="No such file"):
        provide(place / "missing")
    (place / "large").write_bytes(b"x" * (homefiles.SIZE_LIMIT + 1))
    with pytest.raises(NotProvided, match="more than"):
        provide(place / "large")
    as_target(f"ln -s {source} {alice.home}/link; echo x > {alice.home}/own")
    with pytest.raises(NotProvided, match=f"belongs to uid {alice.uid}"):
        provide(alice.home / "own")
    os.chown(place / "fifo", 0, 0)
    assert not (alice.home / "copy").exists()


def test_a_home_that_the_target_cannot_write_is_said_and_nothing_is_left(
    target: Identity, alice: Account, source: Path
) -> None:
    os.chown(alice.home, 0, 0)
    alice.home.chmod(0o755)
    try:
        with pytest.raises(NotProvided, match=r"\.codex: Permission denied"):
            homefiles.provide(target, target.home, folders=(".codex",))
        with pytest.raises(NotProvided, match="Permission denied"):
            homefiles.provide(target, target.home, files=(ProvidedFile(source=source, target="x"),))
        assert list(alice.home.iterdir()) == []
    finally:
        os.chown(alice.home, alice.uid, alice.gid)
        alice.home.chmod(0o700)


def test_a_private_home_is_filled_as_the_caller(tmp_path: Path, source: Path) -> None:
    made = homefiles.provide(
        None, str(tmp_path), files=(ProvidedFile(source=source, target=".codex/auth.json"),)
    )
    assert made.made == (".codex", ".codex/auth.json")
    assert made.kept == ()
    assert owner_and_mode(tmp_path / ".codex/auth.json") == (0, 0, 0o600)


def test_files_are_read_as_the_target_and_links_lead_to_nothing_of_the_services(
    place: Path, target: Identity, alice: Account, source: Path, as_target: Callable[[str], Trial]
) -> None:
    """What is read ends in the target's own arguments: a link must not make the service tell."""
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (closed / "open-mode").write_text("secret")
    (closed / "open-mode").chmod(0o644)
    with (closed / "open-mode").open() as held:
        outcome = as_target(
            f"""cd {alice.home}; echo mine > own; mkfifo fifo; mkdir folder; echo x > mute
            chmod 000 mute; ln -s /proc/self/fd/{held.fileno()} held; ln -s /proc/self/maps maps
            ln -s {source} private; ln -s {closed}/open-mode beyond; ln -s /proc/self/cwd/tmp cwd
            ln -s /proc/self/environ environ; ln -s loop loop; ln -s own link
            head -c 5000 /dev/zero > large"""
        )
        assert outcome.status == 0, outcome
        names = (
            "own", "link", "fifo", "folder", "mute", "held", "private", "beyond", "cwd", "loop",
            "large", "missing",
        )  # fmt: skip
        answer, _ = targetfiles.read(target, (str(alice.home / name) for name in names), limit=1000)
        found = {Path(path).name: content for path, content in answer.items()}
    assert found.pop("own") == found.pop("link") == b"mine\n"
    assert found.pop("large") == b"\0" * 1000
    assert set(found.values()) == {None}
    found_there, traced = targetfiles.read(
        target,
        (str(alice.home / "maps"), str(alice.home / "environ"), f"{alice.home}/"),
        limit=1 << 20,
        searches=((str(alice.home / "own"), b"min"), (str(alice.home / "private"), b"service")),
    )
    maps, environ, listed = found_there.values()
    assert traced == (True, False)
    assert listed is not None
    assert b"own\t5\t" in listed
    ours = Path("/proc/self/maps").read_bytes().split(b"-")[0]
    assert ours not in (maps or b"")
    assert environ in {None, b""}


def test_a_search_in_each_folder_is_done_even_where_nothing_is_to_be_read(
    target: Identity, alice: Account, as_target: Callable[[str], Trial]
) -> None:
    made = as_target(f"cd {alice.home}; mkdir -p notes/a; echo a word > notes/a/log")
    assert made.status == 0, made
    pattern = str(alice.home / "notes" / "*" / "log")
    searches = ((pattern, b"word"), (pattern, b"other"))
    assert targetfiles.read(target, (), limit=1, searches=searches) == ({}, (True, False))


def test_a_target_without_files_is_not_even_asked(
    target: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filerequests, "WORKER", "nonexistent")
    assert targetfiles.read(target, ("/nonexistent/a", "/etc/passwd/b"), limit=1) == (
        {"/nonexistent/a": None, "/etc/passwd/b": None},
        (),
    )
    with pytest.raises(NotProvided, match="ended early"):
        targetfiles.read(target, ("/etc/passwd",), limit=1)


def test_only_plain_files_of_the_targets_own_are_read_without_it(
    place: Path, target: Identity, alice: Account, source: Path, as_target: Callable[[str], Trial]
) -> None:
    """Whoever owns a file can read it; every way to anything else needs the target itself."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "ours").write_text("secret")
    outcome = as_target(
        f"""cd {alice.home}; echo mine > own; mkdir -p a/b; echo deep > a/b/own; echo x > mute
        chmod 000 mute; mkdir shut; echo x > shut/own; chmod 000 shut; mkfifo fifo; ln -s own link
        ln -s a to-folder; ln -s /proc/self proc
        echo shared > {shared}/own; ln -s {source} private; ln -s {place} up"""
    )
    assert outcome.status == 0, outcome
    home = alice.home
    for plain, content in (
        (home / "own", b"mine\n"),
        (home / "a/b/own", b"deep\n"),
        (shared / "own", b"shared\n"),
    ):
        assert read_plain_file(str(plain), target, limit=100) == content
    assert read_plain_file(str(home / "own"), target, limit=2) == b"mi"
    for name in (
        "link", "to-folder/b/own", "mute", "shut/own", "fifo", "a", "a/", "missing", "private",
        "proc/environ", "proc/fd/0", "up/auth.json", "a/../own", "own/x", "nul\0",
    ):  # fmt: skip
        with pytest.raises(NotPlain):
            read_plain_file(f"{home}/{name}", target, limit=100)
    for path in (str(source), str(shared / "ours"), "/proc/self/maps", "/dev/null", "relative"):
        with pytest.raises(NotPlain):
            read_plain_file(path, target, limit=100)


def test_a_plain_file_that_becomes_a_link_while_it_is_read_tells_nothing(
    target: Identity, alice: Account, source: Path, target_python: str
) -> None:
    code = (
        f"import os; os.chdir({str(alice.home)!r}); os.mkdir('d')\n"
        "open('d/file', 'w').write('mine'); print('ready', flush=True)\n"
        "while True:\n"
        f"    os.symlink({str(source)!r}, 'l'); os.rename('l', 'd/file')\n"
        "    open('n', 'w').write('mine'); os.rename('n', 'd/file')\n"
        f"    os.rename('d', 'e'); os.symlink({str(source.parent)!r}, 'd'); os.unlink('d')\n"
        "    os.rename('e', 'd')\n"
    )
    with subprocess.Popen(
        (target_python, "-c", code),
        stdout=subprocess.PIPE,
        user=target.uid,
        group=target.gid,
        extra_groups=[],
        cwd="/",
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen: set[bytes | None] = set()
        for _ in range(3000):
            try:
                seen.add(read_plain_file(f"{alice.home}/d/file", target, limit=100))
            except NotPlain:
                seen.add(None)
        process.kill()
    assert seen <= {None, b"mine", b""}
    assert {None, b"mine"} <= seen
