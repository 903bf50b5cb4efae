from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from materializer.onefile import build

SYSTEM = "/usr/bin/python3"
AGENTSIDE = Path(__file__).parents[2] / "materializer" / "agentside"


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "amux"
    file.write_bytes(build())
    file.chmod(0o555)
    return file


def test_the_same_sources_give_the_same_bytes_in_every_process() -> None:
    script = "import sys; from materializer.onefile import build; sys.stdout.buffer.write(build())"
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(AGENTSIDE.parents[1]), "LC_ALL": "C"},
            check=True,
            capture_output=True,
            timeout=60,
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
    ours = "materializer.agentside"
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
            timeout=60,
        )
        assert b"search QUERY" in shown.stdout
        assert shown.stderr == b""
