"""The one file on the oldest and the newest Python that this machine has."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures.waiting import SECONDS
from tests.agentside.mcp_session import McpSession
from tests.agentside.side import SYSTEM, Side

if TYPE_CHECKING:
    from tests.agentside.scripted_hub import Documents

OLDEST = (3, 9)
FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/*/bin", "~/.pyenv/versions/*/bin")


def _found() -> dict[str, tuple[int, int]]:
    """Return the interpreters that can run the file, by path."""
    folders = [*FOLDERS, *os.environ["PATH"].split(os.pathsep)]
    files = {SYSTEM}
    for pattern in folders:
        folder = Path(pattern).expanduser()
        for place in Path("/").glob(str(folder).lstrip("/")) if folder.is_absolute() else ():
            named = (
                file for file in place.glob("python3.*") if re.fullmatch(r"[0-9.]+", file.name[6:])
            )
            files.update(str(file) for file in named)
    versions = {}
    for file in sorted(files):
        script = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run(
            [file, "-I", "-S", "-c", script], capture_output=True, check=False, timeout=SECONDS
        )
        if done.returncode == 0:
            major, minor = map(int, done.stdout.split())
            if (major, minor) >= OLDEST:
                versions[file] = (major, minor)
    return versions


VERSIONS = _found()
CHOSEN = sorted(
    {SYSTEM, min(VERSIONS, key=VERSIONS.__getitem__), max(VERSIONS, key=VERSIONS.__getitem__)}
)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("interpreter", CHOSEN)
def test_the_one_file_does_everything_on_this_python(
    onefile: Path, side: Side, documents: Documents, interpreter: str
) -> None:
    here = Side(
        (interpreter, "-I", "-S", "-W", "error", "-X", "dev", str(onefile)),
        side.environ,
        side.cwd,
    )
    text = "记忆 🔑\r\n" * 2000
    done = here.memory("upsert", "a.md", "--expected-revision", "absent", stdin=text.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert here.memory("export", "a.md").stdout.decode() == text
    shown = here.memory("show", "a.md", env={"LC_ALL": "C"})
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert here.memory("search").returncode == 2
    assert here.memory("--help").returncode == 0
    with McpSession(here.spawn_mcp()) as session:
        session.initialize()
        result = session.call("get", path="a.md")
        first = result["content"][0]["text"]
        token = re.findall(r"[0-9a-f]{32}", result["content"][1]["text"])[0]
        second = session.call("amux.result_continue", token=token)["content"][0]["text"]
        assert text.startswith(json.loads(first + second)["text"])
        revision = documents.revision("a.md")
        forgotten = session.call("forget", path="a.md", expected_revision=revision)
        assert forgotten["structuredContent"]["already_absent"] is False
        assert session.close() == 0
    assert documents.texts == {}


def test_an_interpreter_of_tls_reaches_the_same_code_on_the_oldest_python(onefile: Path) -> None:
    script = (
        "import sys, runpy; sys.argv = ['amux', '--version'];"
        f"\ntry: runpy.run_path({str(onefile)!r}, run_name='__main__')\nexcept SystemExit: pass"
        "\nimport amux.materializer.agentside.tls"
    )
    for interpreter in CHOSEN:
        subprocess.run(
            [interpreter, "-I", "-S", "-c", script],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
