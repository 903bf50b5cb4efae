"""What the package `amux` costs at the start of a command: `benchmarks/start_up.py`.

In one run, turn by turn: `amux memory show` and `amux launch generic -- true`, each with the
package as it is, with one in its place whose `__init__` is empty, and with one that imports every
public name at once; and an interpreter that does nothing. The bound is a ratio, as they all are.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fixtures.hubs import running

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[1]
ROUNDS: Final = 21
MOST: Final = 1.1
"""At most so many times what an empty package takes."""
MAIN: Final = "import sys; from amux.launcher.command import main; sys.exit(main())"
EAGER: Final = """
for _name in __all__:
    try:
        __getattr__(_name)
    except ImportError:  # the shim has the standard library alone
        pass
"""
COMMANDS: Final = {
    "memory show": ("memory", "show", "MEMORY.md"),
    "launch generic": ("launch", "generic", "--", "true"),
}


def packages(folder: Path) -> dict[str, Path]:
    """Make the packages to compare, each the folders of the repository and an `__init__`."""
    ours = (ROOT / "amux" / "__init__.py").read_text(encoding="utf-8")
    made = {}
    for name, text in (("amux", ours), ("empty", ""), ("eager", ours + EAGER)):
        package = folder / name / "amux"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text, encoding="utf-8")
        for part in (ROOT / "amux").iterdir():
            if not part.name.startswith("__"):
                (package / part.name).symlink_to(part.resolve())
        made[name] = package.parent
    return made


def took(argv: tuple[str, ...], environ: Mapping[str, str]) -> float:
    """Return the milliseconds that a command took."""
    begin = time.perf_counter()
    done = subprocess.run(argv, env=environ, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{argv}: {done.stderr}")
    return (time.perf_counter() - begin) * 1e3


def main() -> int:
    """Print the table; status 1 where the package costs more than its bound."""
    exceeded = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = packages(folder)
        with running(folder / "hub") as hub:
            with hub.client("user") as user:
                user.health()
            environ = {
                "AMUX_HOME": str(hub.home),
                "AMUX_RUNS": str(folder / "runs"),
                "HOME": str(folder),
                "PATH": "/usr/bin:/bin",
            }
            print(f"{'':16} {'amux':>9} {'/ empty':>8} {'/ eager':>8} {'/ pass':>8} {'at most':>8}")
            for label, words in COMMANDS.items():
                samples: dict[str, list[float]] = {"pass": []} | {one: [] for one in places}
                for _ in range(ROUNDS):
                    samples["pass"].append(took((sys.executable, "-I", "-S", "-c", "pass"), {}))
                    for one, place in places.items():
                        given = {**environ, "PYTHONPATH": str(place)}
                        argv = (sys.executable, "-P", "-c", MAIN, *words)
                        samples[one].append(took(argv, given))
                middle = {one: statistics.median(values) for one, values in samples.items()}
                ratios = {one: middle["amux"] / middle[one] for one in ("empty", "eager", "pass")}
                exceeded |= ratios["empty"] > MOST
                shown = " ".join(f"{ratio:8.2f}" for ratio in ratios.values())
                print(f"{label:16} {middle['amux']:6.1f} ms {shown} {MOST:8.2f}")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
