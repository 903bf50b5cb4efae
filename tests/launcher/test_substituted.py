"""Arguments that name a descriptor of the caller's: a shell's `<(command)`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import BadRequest
from amux.launcher.launch import launch
from amux.launcher.request import LaunchRequest
from amux.launcher.steps import descriptor_arguments
from amux.launcher.steps.descriptor_arguments import substituted
from amux.providers.base import Mode
from fixtures.stages import AMUX
from fixtures.waiting import SECONDS
from tests.launcher.agents_at_work import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host

FOLDER = Path("/runs/1/agent-config/memory")


@pytest.fixture(name="pipe")
def _pipe() -> Iterator[int]:
    """Give the reading end of a pipe that holds a text and has ended."""
    reading, writing = os.pipe()
    os.write(writing, b"of the pipe\xff")
    os.close(writing)
    yield reading
    os.close(reading)


def test_what_is_behind_a_descriptor_is_read_once_and_becomes_a_file_of_the_run(pipe: int) -> None:
    name = f"argument-{pipe}"
    words = (f"/dev/fd/{pipe}", f"--a=/proc/self/fd/{pipe}", f"@/dev/fd/{pipe}", "-c", "b")
    quoted = f'c="/dev/fd/{pipe}"'
    found = substituted((*words, quoted), FOLDER)
    place = f"{FOLDER}/{name}"
    assert found.arguments == (place, f"--a={place}", f"@{place}", "-c", "b", f'c="{place}"')
    ((file),) = found.files
    assert (file.name, file.content, file.executable) == (name, b"of the pipe\xff", False)


def test_a_file_that_the_caller_opened_counts_and_nothing_that_only_looks_so(
    pipe: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("of the file")
    with (tmp_path / "file").open() as file, (tmp_path / "out").open("w") as out:
        found = substituted((f"/dev/fd/{file.fileno()}",), FOLDER)
        assert [one.content for one in found.files] == [b"of the file"]
        others = (
            f"look at /dev/fd/{pipe}",
            f"/dev/fd/{pipe}/x",
            f"x/dev/fd/{pipe}",
            f"/dev/fd/{out.fileno()}",
            "/dev/fd/0",
            "/dev/fd/2",
            "/dev/fd/999999",
            "/dev/fd/99999999999999",
        )
        assert substituted(others, FOLDER).arguments == others
        assert substituted(others, FOLDER).files == ()


def test_a_pipe_that_does_not_end_or_is_too_long_is_refused(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptor_arguments, "SIZE_LIMIT", 5)
    with pytest.raises(BadRequest, match=f"/dev/fd/{pipe} holds more than 5 bytes"):
        substituted((f"/dev/fd/{pipe}",), FOLDER)
    monkeypatch.setattr(descriptor_arguments, "SECONDS", 0.0)
    reading, writing = os.pipe()
    try:
        with pytest.raises(BadRequest, match=f"/dev/fd/{reading} did not end"):
            substituted((f"/dev/fd/{reading}",), FOLDER)
    finally:
        os.close(reading)
        os.close(writing)


def test_an_agent_without_memory_reads_it_as_a_file_that_is_gone_afterwards(
    host: Host, tmp_path: Path, pipe: int
) -> None:
    copy = tmp_path / "copy"
    request = LaunchRequest(
        provider="generic",
        arguments=("/bin/cp", f"/dev/fd/{pipe}", str(copy)),
        cwd=tmp_path,
        environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        mode=Mode.STREAM,
    )
    with launch(replace(request), host) as run:
        assert run.wait(DEADLINE) is not None
    assert copy.read_bytes() == b"of the pipe\xff"
    assert list(host.runs.iterdir()) == []


def test_the_command_takes_a_shells_substitution(host: Host, tmp_path: Path) -> None:
    line = f"{AMUX} launch generic -- /bin/cat <(printf one) <(printf two)"
    environ = {**host.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        env=environ,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "onetwo"), done.stderr
