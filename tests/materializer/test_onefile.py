from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from amux.materializer.onefile import build
from fixtures.accounts import STRANGER
from fixtures.waiting import SECONDS

SYSTEM = "/usr/bin/python3"
AGENTSIDE = Path(__file__).parents[2] / "materializer" / "agentside"


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "amux"
    file.write_bytes(build())
    file.chmod(0o555)
    return file


def test_the_same_sources_give_the_same_bytes_in_every_process() -> None:
    script = """
import sys
from amux.materializer.onefile import build
sys.stdout.buffer.write(build())
"""
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(AGENTSIDE.parents[1]), "LC_ALL": "C"},
            check=True,
            capture_output=True,
            timeout=SECONDS,
        ).stdout
        assert other == build()


def test_the_file_is_below_200_kibibytes_and_is_python_3_9() -> None:
    raw = build()
    assert len(raw) < 200 * 1024
    ast.parse(raw, feature_version=(3, 9))


def test_the_interpreter_stands_isolated_in_the_first_line() -> None:
    assert build("/opt/py/bin/python3.9").startswith(b"#!/opt/py/bin/python3.9 -IS\n")


@pytest.mark.parametrize("interpreter", ["python3", "/usr/bin/env python3", "/a\nb", ""])
def test_an_interpreter_that_a_first_line_cannot_name_is_refused(interpreter: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        build(interpreter)


def test_every_packed_module_is_python_3_9_on_its_standard_library_alone() -> None:
    ours = "amux.materializer.agentside"
    files = sorted(AGENTSIDE.glob("*.py"))
    assert len(files) > 5
    for file in files:
        tree = ast.parse(file.read_bytes(), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                root = name.partition(".")[0]
                assert root in sys.stdlib_module_names or name.startswith(ours), (file, name)


def test_the_file_runs_alone_from_any_folder(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('shadowed')")
    for command in ([str(file)], [SYSTEM, "-I", "-S", str(file)]):
        shown = subprocess.run(
            [*command, "memory", "--help"],
            cwd=folder,
            env={},
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        assert b"search QUERY" in shown.stdout
        assert shown.stderr == b""


@pytest.mark.parametrize("arguments", [["memory", "show", "a.md"], ["memory"], ["mcp"]])
def test_the_file_opens_nothing_for_writing_and_makes_nothing(
    file: Path, tmp_path: Path, arguments: list[str]
) -> None:
    # The audit hook sees every open of the process, also those of the interpreter itself.
    script = (
        "import os, runpy, sys\n"
        "CHANGING = ('os.mkdir', 'os.rename', 'os.remove', 'os.rmdir', 'os.symlink', 'os.link')\n"
        "def see(event, arguments):\n"
        "    made = event in CHANGING or (event == 'open' and isinstance(arguments[2], int)\n"
        "        and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))\n"
        "    if made:\n"
        "        os.write(2, f'WROTE {event} {arguments}'.encode())\n"
        "sys.addaudithook(see)\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = subprocess.run(
        [SYSTEM, "-I", "-S", "-c", script, str(file), *arguments],
        env={"AMUX_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode in {0, 5}
    assert b"WROTE" not in done.stderr
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.root
def test_the_file_runs_as_a_user_who_may_write_nowhere(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = Path(folder, "amux")
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o555)
        for arguments, status in ((["memory", "--help"], 0), (["memory", "show", "a.md"], 4)):
            done = subprocess.run(
                [str(copy), *arguments],
                env={"HOME": "/root"},
                cwd="/",
                user=STRANGER,
                group=STRANGER,
                extra_groups=[],
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
            assert done.returncode == status
            assert b"Traceback" not in done.stderr
        assert os.listdir(folder) == ["amux"]  # noqa: PTH208  # names only
