"""Thousands of Principals: a change costs what it changes, and shows at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.errors import IdentityRefused
from amux.hub.identity import CredentialFile, PrincipalFile
from amux.hub.identity.records import APPENDED_FROM

if TYPE_CHECKING:
    from pathlib import Path

MANY: Final = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with many Principals, as one object."""
    records = {f"p{n}": {"aliases": [f"chat:{n}"], "created": n} for n in range(MANY)}
    path = tmp_path / "principals.json"
    path.write_text(json.dumps({"schema": 1, "principals": records}) + "\n")
    path.chmod(0o600)
    return tmp_path


def test_a_principal_more_is_a_line_more_that_every_reader_sees(folder: Path) -> None:
    path = folder / "principals.json"
    reader, writer = PrincipalFile(folder), PrincipalFile(folder)
    assert len(reader.current().by_id) == MANY
    before = path.stat()
    for number in range(50):
        writer.add(f"new{number}", (f"n:{number}",))
        found = reader.current().resolve(f"n:{number}")
        assert found is not None
        assert found.id == f"new{number}"
    after = path.stat()
    assert after.st_ino == before.st_ino
    assert after.st_size - before.st_size < 50 * 120
    assert len(PrincipalFile(folder).current().by_id) == MANY + 50
    with pytest.raises(IdentityRefused, match="already"):
        PrincipalFile(folder).add("other", ("n:7",))


def test_a_revocation_among_many_is_a_line_and_holds(tmp_path: Path) -> None:
    records = {
        f"{n:016x}": {"kind": "admin", "sha256": "0" * 64, "label": "", "created": 0}
        for n in range(MANY)
    }
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"schema": 1, "credentials": records}) + "\n")
    path.chmod(0o600)
    hub, operator = CredentialFile(tmp_path), CredentialFile(tmp_path)
    token = operator.issue("admin", label="one")
    assert token.id in hub.current()
    newer = operator.issue("admin", label="one", replacing_label=True)
    assert token.id not in hub.current()
    operator.revoke(newer.id)
    assert newer.id not in hub.current()
    assert set(CredentialFile(tmp_path).current()) == set(records)


def test_the_file_is_written_anew_before_it_holds_twice_what_it_says(folder: Path) -> None:
    path = folder / "principals.json"
    writer = PrincipalFile(folder)
    whole = path.stat().st_size
    for number in range(MANY + 1):
        writer.add_alias("p1", f"again:{number}") if number % 100 == 0 else writer.add(f"n{number}")
    assert path.stat().st_size < 3 * whole
    assert len(PrincipalFile(folder).current().by_id) > 2 * MANY - 10


def test_a_few_records_stay_one_plain_object(tmp_path: Path) -> None:
    writer = PrincipalFile(tmp_path)
    for number in range(20):
        writer.add(f"p{number}")
    assert len(json.loads((tmp_path / "principals.json").read_text())["principals"]) == 20
    assert APPENDED_FROM > 20


def test_half_a_line_of_a_killed_writer_counts_for_nothing(folder: Path) -> None:
    path = folder / "principals.json"
    PrincipalFile(folder).add("whole")
    with path.open("a") as file:
        file.write('{"half": {"aliases": [')
    assert "half" not in PrincipalFile(folder).current().by_id
    PrincipalFile(folder).add("next")
    assert {"whole", "next"} <= set(PrincipalFile(folder).current().by_id)
    assert '"half"' not in path.read_text()


@pytest.mark.parametrize("line", ["{", "[]", '{"x": 7}', '{"x": {"aliases": 1}}', "\0"])
def test_a_damaged_line_is_refused_by_a_reader_old_and_new(folder: Path, line: str) -> None:
    path = folder / "principals.json"
    reader = PrincipalFile(folder)
    reader.current()
    with path.open("a") as file:
        file.write(line + "\n")
    for one in (reader, PrincipalFile(folder), reader):
        with pytest.raises(IdentityRefused):
            one.current()


def test_a_file_that_was_edited_by_hand_is_read_anew(folder: Path) -> None:
    path = folder / "principals.json"
    reader = PrincipalFile(folder)
    reader.current()
    tree = json.loads(path.read_text())
    tree["principals"] = {"hand": {"aliases": ["x" * path.stat().st_size], "created": 1}}
    path.write_text(json.dumps(tree, indent=1))
    assert set(reader.current().by_id) == {"hand"}


def test_another_file_of_the_same_number_and_ending_is_read_anew(folder: Path) -> None:
    """A restored file may get the inode of the one before; a revocation in it must count."""
    path = folder / "principals.json"
    reader = PrincipalFile(folder)
    assert reader.current().resolve("p0") is not None
    before = path.stat()
    text = path.read_text().replace('"p0"', '"q0"').replace('"chat:0"', '"chat:x"')
    path.write_text(text)
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_size == before.st_size
    assert reader.current().resolve("p0") is None
    assert reader.current().resolve("chat:x") is not None
