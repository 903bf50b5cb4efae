"""Search in process beside `ripgrep -iF` on the same files: `python -m benchmarks.search`.

1,024 documents and 8 MiB, warm; 1, 4 and 16 terms. The bounds are ratios of one run, so
that they hold on any machine. Without ripgrep (Debian package `ripgrep`) it says so and
ends with status 2.
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.limits import Limits
from amux.hub.store import MemoryStore
from amux.hub.values import Scope, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS: Final = 1024
BYTES_EACH: Final = 8 * 1024
ROUNDS: Final = 15
MOST: Final = {1: 2.5, 4: 4.0, 16: 5.0}


def fill(root: Path) -> list[str]:
    """Write the documents; return words, the rarest first, that occur in some of them."""
    source = random.Random(7)  # noqa: S311  # sample text, not a secret
    syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(source.choices(syllables, k=source.randint(1, 4))) for _ in range(4000)]
    scope = root / "global"
    for number in range(DOCUMENTS):
        lines = [f"# Note {number}"]
        size = len(lines[0]) + 1
        while size < BYTES_EACH:
            line = " ".join(source.choices(words, k=11))[: BYTES_EACH - size - 1]
            lines.append(line)
            size += len(line) + 1
        path = scope / f"topic{number % 32:02}" / f"note{number:04}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return [f"Rare{word}{index}" for index, word in enumerate(words[:16])]


def plant(root: Path, terms: list[str]) -> None:
    """Put each term into two documents, so that matches exist and are few."""
    paths = sorted((root / "global").rglob("*.md"))
    for index, term in enumerate(terms):
        for path in (paths[index * 7], paths[index * 11 + 3]):
            text = path.read_text()
            path.write_text(text[: -len(term) - 2] + f" {term}\n")


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def main() -> int:
    """Print the ratios; 1 if one is over its bound, 2 without ripgrep."""
    ripgrep = shutil.which("rg")
    if ripgrep is None:
        print("ripgrep is not installed (Debian package ripgrep): nothing to compare with")
        return 2
    exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "memory"
        terms = fill(root)
        plant(root, terms)
        store = MemoryStore(root, limits=Limits(search_seconds=60))
        print(f"{DOCUMENTS} documents, {DOCUMENTS * BYTES_EACH / 2**20:.0f} MiB, {ROUNDS} rounds")
        print("terms   amux ms   ripgrep ms   ratio   at most")
        for count, most in MOST.items():
            query = " ".join(terms[:count])
            argv = [ripgrep, "-iF", *(f"-e{term}" for term in terms[:count]), str(root)]
            request = SearchRequest(query=query)
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(seconds(partial(store.search, Scope(), request)))
                theirs.append(seconds(partial(_run, argv)))
            answer = store.search(Scope(), request)
            if answer.incomplete or answer.scanned_files != DOCUMENTS or not answer.matches:
                raise SystemExit(f"the search did not cover the files: {answer}")
            mine, other = statistics.median(ours), statistics.median(theirs)
            ratio = mine / other
            exceeded |= ratio > most
            print(f"{count:5} {mine * 1e3:9.1f} {other * 1e3:12.1f} {ratio:7.2f} {most:9.1f}")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
