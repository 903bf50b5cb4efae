from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amux.materializer import identity
from amux.materializer.errors import IdentityRefused
from fixtures import accounts

if TYPE_CHECKING:
    from pathlib import Path

    from fixtures.accounts import Account

pytestmark = pytest.mark.root


def test_an_identity_is_complete_with_every_supplementary_group() -> None:
    with (
        accounts.group() as (first, gid),
        accounts.group() as (second, other_gid),
        accounts.account(groups=(first, second)) as made,
    ):
        found = identity.resolve(made.name)
        assert (found.user, found.uid, found.gid) == (made.name, made.uid, made.gid)
        assert set(found.groups) == {made.gid, gid, other_gid}
        assert (found.home, found.shell) == (str(made.home), "/bin/sh")
        assert identity.remarks(found) == ()


@pytest.mark.parametrize("name", ["amux-nobody-has-this-name", "", "a\0b", "-x", "../etc", "0"])
def test_a_user_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(IdentityRefused, match="there is no user"):
        identity.resolve(name)


def test_root_is_refused() -> None:
    with pytest.raises(IdentityRefused, match="root is root"):
        identity.resolve("root")


def test_an_account_that_has_expired_is_refused() -> None:
    with accounts.account(options=("-e", "2001-02-03")) as made:
        with pytest.raises(IdentityRefused, match=r"expired.*chage"):
            identity.resolve(made.name)
        subprocess.run(("/usr/bin/chage", "-E", "2999-01-01", made.name), check=True)
        assert identity.resolve(made.name).uid == made.uid


def test_a_home_that_is_missing_a_file_or_another_owners_is_refused(bob: Account) -> None:
    with accounts.account() as made:
        os.chown(made.home, bob.uid, bob.gid)
        with pytest.raises(IdentityRefused, match=f"belongs to uid {bob.uid}"):
            identity.resolve(made.name)
        made.home.rmdir()
        with pytest.raises(IdentityRefused, match=r"No such file.*make it first"):
            identity.resolve(made.name)
        made.home.write_text("")
        with pytest.raises(IdentityRefused, match="is not a folder"):
            identity.resolve(made.name)


def test_an_account_without_a_login_shell_is_used_and_the_operator_is_told() -> None:
    with accounts.account(options=("-s", "/usr/sbin/nologin")) as made:
        found = identity.resolve(made.name)
        assert found.shell == "/bin/sh"
        assert any("no login shell" in said for said in identity.remarks(found))


def test_a_home_that_others_can_write_to_is_remarked(place: Path) -> None:
    with accounts.account(place / "open") as made:
        made.home.chmod(0o777)
        assert any("writable for others" in said for said in identity.remarks(
            identity.resolve(made.name)))  # fmt: skip


def test_groups_that_lead_to_root_are_remarked() -> None:
    with accounts.account(groups=("disk",)) as made:
        found = identity.resolve(made.name)
        assert any(
            "disk, whose members can become root" in said for said in identity.remarks(found)
        )


def test_without_the_capabilities_nothing_is_even_looked_up() -> None:
    code = (
        "import ctypes\n"
        "from amux.materializer import privileges, errors, identity\n"
        "header = privileges._CapHeader(privileges.CAPABILITY_VERSION_3, 0)\n"
        "data = (privileges._CapData * 2)()\n"
        "data[0].permitted = data[0].effective = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 7\n"
        "assert ctypes.CDLL(None).capset(ctypes.byref(header), data) == 0\n"
        "try: identity.resolve('no-such-user')\n"
        "except errors.CapabilityMissing as error: print(error)\n"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert "CAP_SETGID" in done.stdout
    assert "CAP_SETUID" not in done.stdout


def test_the_account_that_amux_runs_as_isolates_nothing(
    monkeypatch: pytest.MonkeyPatch, alice: Account
) -> None:
    # Becoming alice for good would end the test run; only the comparison is of interest.
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam(alice.name).pw_uid)
    with pytest.raises(IdentityRefused, match="the account that amux runs as"):
        identity.resolve(alice.name)
