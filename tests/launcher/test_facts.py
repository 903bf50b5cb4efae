"""Reading files that belong to somebody else."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.steps.read_files import read_facts
from amux.materializer.values import Identity
from amux.providers.base import MAX_FACT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = Identity(  # noqa: S604  # `shell` is a field
    user="nobody",
    uid=65534,
    gid=65534,
    groups=(65534,),
    home="/nonexistent",
    shell="/bin/sh",  # a field, not a call through a shell
)


def test_a_file_is_read_to_the_bound_and_what_is_no_file_counts_as_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "text").write_bytes(b"abc")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(10 * MAX_FACT_BYTES)
    os.mkfifo(tmp_path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    names = ("text", "huge", "fifo", "socket", ".", "missing")
    facts = read_facts(tuple(str(tmp_path / name) for name in names), None).files
    listener.close()
    values = [facts[str(tmp_path / name)] for name in names]
    assert values[0] == b"abc"
    assert values[1] is not None
    assert len(values[1]) == MAX_FACT_BYTES
    assert values[2:] == [None, None, None, None]


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Give a folder that every account can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="amux-facts-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.root
def test_a_link_of_the_targets_to_a_secret_of_the_services_reads_as_missing(
    reachable: Path,
) -> None:
    for name, mode in (("secret", 0o600), ("group-secret", 0o640), ("open", 0o644)):
        (reachable / name).write_text(name)
        (reachable / name).chmod(mode)
    (reachable / "link").symlink_to(reachable / "secret")
    paths = [str(reachable / name) for name in ("link", "secret", "group-secret", "open")]
    facts = read_facts(tuple(paths), NOBODY).files
    assert [facts[path] for path in paths] == [None, None, None, b"open"]
    own = (reachable / "secret").read_text()
    assert own == "secret", "this thread's own identity is as it was"


@pytest.mark.root
def test_the_targets_own_file_is_read_with_its_rights(reachable: Path) -> None:
    own = reachable / "own"
    own.write_text("mine")
    os.chown(own, NOBODY.uid, NOBODY.gid)
    own.chmod(0o400)
    assert read_facts((str(own),), NOBODY).files[str(own)] == b"mine"


def test_a_pattern_reads_each_such_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_bytes(b"two\0")
    (tmp_path / "a.toml").write_bytes(b"one")
    (tmp_path / "c.txt").write_bytes(b"no")
    (tmp_path / "d.toml").mkdir()
    asked = (f"{tmp_path}/*.toml", f"{tmp_path}/missing/*.toml")
    files = read_facts(asked, None).files
    assert files == {asked[0]: b"a.toml\0one\0b.toml\0two\0", asked[1]: None}


@pytest.mark.root
def test_a_pattern_in_the_targets_own_closed_folder_is_read_as_the_target(reachable: Path) -> None:
    folder = reachable / "agents"
    folder.mkdir(mode=0o700)
    (folder / "a.toml").write_text("mine")
    secret = reachable / "secret"
    secret.write_text("the service's")
    secret.chmod(0o600)
    (folder / "b.toml").symlink_to(secret)
    for path in (folder, folder / "a.toml"):
        os.chown(path, NOBODY.uid, NOBODY.gid)
    asked = f"{folder}/*.toml"
    assert read_facts((asked,), NOBODY).files[asked] == b"a.toml\0mine\0"
