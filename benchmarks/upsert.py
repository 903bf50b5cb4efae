"""A durable upsert of 1 KiB beside the bare sequence of system calls: `benchmarks/upsert.py`.

Bare: create a temporary file, write, fsync, rename, fsync the folder. The two take turns on
the same disk. Beside the bound of 2: what the content guard takes, and what a scope of
1,024 documents adds.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.guard import inspect
from amux.hub.store import MemoryStore
from amux.hub.values import ABSENT, Scope, UpsertRequest

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS: Final = 200
MOST: Final = 2.0
SIZE: Final = 1024
FULL: Final = 1024
FEW: Final = 10


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def bare(folder: int, data: bytes) -> None:
    """Replace a file durably with nothing around the system calls."""
    file = os.open("new.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    os.write(file, data)
    os.fsync(file)
    os.close(file)
    os.rename("new.tmp", "bare.md", src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def text(number: int) -> str:
    """Return an ordinary note of `SIZE` bytes that differs by its number."""
    start = f"# Note {number:08}\n\n"
    line = "- The staging database is rebuilt each night from the last backup; ask before.\n"
    return (start + line * (SIZE // len(line) + 1))[:SIZE]


class Writer:
    """Writes one document of a scope again and again."""

    def __init__(self, store: MemoryStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._revision = ABSENT
        self._number = 0

    def write(self) -> None:
        """Replace the document by another text."""
        self._number += 1
        request = UpsertRequest(
            path="topics/note.md", content=text(self._number), expected_revision=self._revision
        )
        self._revision = self._store.upsert(self._scope, request).revision


class Creator:
    """Creates documents and removes them again behind the clock's back."""

    def __init__(self, store: MemoryStore, scope: Scope, folder: Path) -> None:
        self._store = store
        self._scope = scope
        self._document = folder / "topics" / "fresh.md"

    def prepare(self) -> None:
        """Take the document away."""
        self._document.unlink(missing_ok=True)

    def create(self) -> None:
        """Create the document."""
        request = UpsertRequest(path="topics/fresh.md", content=text(0), expected_revision=ABSENT)
        self._store.upsert(self._scope, request)


def main() -> int:
    """Print the figures; 1 when the bound does not hold."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        root = Path(folder) / "memory"
        store = MemoryStore(root.resolve())
        few, full = Scope("few"), Scope("full")
        for scope, documents in ((few, FEW), (full, FULL)):
            topics = root / scope.folder / "topics"
            topics.mkdir(parents=True)
            for number in range(documents - 1):
                (topics / f"n{number:04}.md").write_text(text(number))
        bare_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        calls: dict[str, Callable[[], object]] = {
            "bare": partial(bare, bare_folder, text(1).encode()),
            "replace, 10 documents": Writer(store, few).write,
            "replace, 1,024 documents": Writer(store, full).write,
            "guard alone": partial(inspect, text(1)),
        }
        taken: dict[str, list[float]] = {name: [] for name in (*calls, "create", "create, full")}
        creators = {
            "create": Creator(store, few, root / few.folder),
            "create, full": Creator(store, full, root / full.folder),
        }
        for name in ("replace, 10 documents", "replace, 1,024 documents"):
            calls[name]()
        (root / full.folder / "topics" / "n0000.md").unlink()
        for _ in range(ROUNDS):
            for name, call in calls.items():
                taken[name].append(seconds(call))
            for name, creator in creators.items():
                creator.prepare()
                taken[name].append(seconds(creator.create))
        os.close(bare_folder)
    median = {name: statistics.median(times) for name, times in taken.items()}
    base = median["bare"]
    print(f"{SIZE} bytes, {ROUNDS} rounds; ratio to the bare sequence")
    for name, value in median.items():
        print(f"{name:26} {value * 1e3:8.3f} ms {value / base:7.2f}")
    ratio = median["replace, 10 documents"] / base
    print(f"replace in a scope of 10: {ratio:.2f} of at most {MOST}")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
