from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.materializer import tenancy
from amux.materializer.errors import MaterializeError, UidTaken
from amux.materializer.values import Identity

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Identity(user="alice", uid=5001, gid=5001, groups=(5001,), home="/h/a", shell="")
BOB = replace(ALICE, user="bob", uid=5002)


def test_an_account_serves_the_principal_that_it_served_first(tmp_path: Path) -> None:
    registry = tmp_path / "accounts.json"
    tenancy.claim(registry, ALICE, "ann")
    tenancy.claim(registry, ALICE, "ann")
    tenancy.claim(registry, BOB, "ben")
    with pytest.raises(UidTaken, match=r"alice \(uid 5001\) serves Principal ann.*ben"):
        tenancy.claim(registry, ALICE, "ben")
    with pytest.raises(UidTaken):
        tenancy.claim(registry, replace(ALICE, user="renamed"), "ben")
    assert stat.S_IMODE(registry.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["accounts.json"]


def test_a_claim_is_on_disk_before_the_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(fd: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def renamed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        calls.append("rename")
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    tenancy.claim(tmp_path / "accounts.json", ALICE, "ann")
    assert calls == ["file", "rename", "folder"]
    tenancy.release(tmp_path / "accounts.json", ALICE, "ann")
    assert calls == ["file", "rename", "folder"] * 2


def test_one_principal_may_have_several_accounts(tmp_path: Path) -> None:
    tenancy.claim(tmp_path / "accounts.json", ALICE, "ann")
    tenancy.claim(tmp_path / "accounts.json", BOB, "ann")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema": 2, "uids": {}}', '{"schema": 1}', '"x"', "\xff"]
)
def test_a_registry_that_cannot_be_read_permits_nothing_and_is_kept(
    tmp_path: Path, content: str
) -> None:
    registry = tmp_path / "accounts.json"
    registry.write_text(content, encoding="latin-1")
    with pytest.raises(MaterializeError, match=r"accounts\.json"):
        tenancy.claim(registry, ALICE, "ann")
    assert registry.read_text(encoding="latin-1") == content


def test_of_many_claims_at_once_for_one_account_one_wins(tmp_path: Path) -> None:
    registry = tmp_path / "accounts.json"
    won: list[str] = []

    def claim(principal: str) -> None:
        try:
            tenancy.claim(registry, ALICE, principal)
        except UidTaken:
            return
        won.append(principal)

    threads = [threading.Thread(target=claim, args=(f"p{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
