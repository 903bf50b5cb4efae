"""A root on a file system that cannot be relied on is refused at start."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from amux.hub.errors import StorageFailed
from amux.hub.mounts import file_system_type, is_network, require_local

ROOT_ROW = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw"


def row(point: str, kind: str) -> str:
    escaped = point.replace(" ", r"\040")
    return f"40 22 0:41 / {escaped} rw,relatime shared:7 master:2 - {kind} server:/share rw"


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "fuseblk", "virtiofs"]
)
def test_a_root_on_a_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, kind: str
) -> None:
    table = tmp_path / "mountinfo"
    root = tmp_path / "home" / "memory"
    root.mkdir(parents=True)
    table.write_text("\n".join([ROOT_ROW, row(str(tmp_path / "home"), kind)]))
    with pytest.raises(StorageFailed, match=kind) as refused:
        require_local(root, table=table)
    assert refused.value.fields == {"file_system": kind}
    require_local(root, table=table, allow=True)
    assert list(root.iterdir()) == []


def test_the_mount_that_counts_is_the_deepest_and_of_these_the_last(tmp_path: Path) -> None:
    table = "\n".join(
        [
            ROOT_ROW,
            "a line that is no mount",
            row("/srv", "nfs4"),
            row("/srv/a b", "ext4"),
            row("/srv/a b", "xfs"),
            row("/srv/a", "cifs"),
        ]
    )
    for folder, kind in {
        "/srv": "nfs4",
        "/srv/a b/memory": "xfs",
        "/srv/a/memory": "cifs",
        "/srv/ab": "nfs4",
        "/srvx": "ext4",
        "/": "ext4",
    }.items():
        assert file_system_type(Path(folder), table) == kind, folder
    assert file_system_type(tmp_path, "") is None


def test_local_kinds_are_taken(tmp_path: Path) -> None:
    assert not any(is_network(kind) for kind in ("ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs"))
    require_local(tmp_path)


def test_a_symlinked_home_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    table = tmp_path / "mountinfo"
    table.write_text("\n".join([ROOT_ROW, row(str(real), "nfs4")]))
    with pytest.raises(StorageFailed, match="nfs4"):
        require_local(tmp_path / "link", table=table)


def test_locks_that_do_nothing_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="locks do nothing"):
        require_local(tmp_path, lock=lambda file, how: None)  # noqa: ARG005  # it does nothing

    def unsupported(file: int, how: int) -> None:
        raise OSError(95, f"operation not supported: {file} {how}")

    with pytest.raises(StorageFailed, match="not supported"):
        require_local(tmp_path, lock=unsupported)
    require_local(tmp_path, lock=fcntl.flock)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_root_or_table_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        require_local(tmp_path / "none")
    with pytest.raises(StorageFailed):
        require_local(tmp_path, table=tmp_path / "none")
