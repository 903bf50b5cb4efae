"""The folders of a launch by their own names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import BadRequest
from amux.launcher.steps.folders import entered, plain

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_is_named_as_the_kernel_names_it(tmp_path: Path) -> None:
    place = tmp_path.resolve() / "place"
    place.mkdir()
    link = tmp_path / "link"
    link.symlink_to(place)
    assert entered(str(link), None) == str(place)
    assert entered(f"{link}/../link//.", None) == str(place)


@pytest.mark.parametrize(("name", "wrong"), [("nowhere", "is not there"), ("file", "is no folder")])
def test_a_folder_that_cannot_be_entered_is_refused_by_its_name(
    tmp_path: Path, name: str, wrong: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadRequest, match=f"the folder {tmp_path / name} {wrong}"):
        entered(str(tmp_path / name), None)
    with pytest.raises(BadRequest, match=r"the folder here is not an absolute path"):
        entered("here", None)


def test_a_home_in_plain_form_stays_as_it_is_and_another_is_made_plain(tmp_path: Path) -> None:
    home = tmp_path.resolve() / "home"
    home.mkdir()
    link = tmp_path / "link"
    link.symlink_to(home)
    assert plain(str(link)) == str(link)
    for form in (f"{home}/", f"/{home}", f"{tmp_path}//home", f"{home}/../home", f"{link}/."):
        assert plain(form) == str(home), form
    assert plain(os.path.relpath(home)) == str(home)
