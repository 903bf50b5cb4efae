"""What the content guard refuses and what it lets pass: `python -m benchmarks.guard`.

Both halves of the corpus in `fixtures/guard/`: ordinary notes, which must pass, and published
formats of keys, which must not. `--show` lists what went wrong in the half that rules are written
against; of the other half only counts are printed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from amux.hub.guard import inspect
from fixtures.guardcorpus import HALVES, formats, notes

if TYPE_CHECKING:
    from fixtures.guardcorpus import Half

LEAST: Final = 0.95
SEEDS: Final = (1, 2, 3)


def refused(half: Half) -> list[str]:
    """Return each ordinary note that is refused, with the rule."""
    found = ((inspect(note.text), note) for note in notes(half))
    return [f"{finding.rule}: {note.text.strip()}" for finding, note in found if finding]


def passed(half: Half, *, own: bool) -> tuple[list[str], int]:
    """Return each format of which a sample passes, and how many formats there are."""
    wanted = [one for one in formats(half) if one.own is own]
    missed = [
        f"{one.vendor}: {one.template}"
        for one in wanted
        if not all(inspect(f"# Access\n\n{one.sample(seed)}\n") for seed in SEEDS)
    ]
    return missed, len(wanted)


def main() -> int:
    """Print both halves; 1 when a goal is missed."""
    show = "--show" in sys.argv
    good = True
    for half in HALVES:
        wrong = refused(half)
        print(f"{half:9} ordinary notes refused        {len(wrong):4} of {len(notes(half)):4}")
        good &= not wrong
        missed_all = total_all = 0
        for own, how in ((True, "with a form of their own"), (False, "known by their name")):
            missed, total = passed(half, own=own)
            missed_all, total_all = missed_all + len(missed), total_all + total
            print(f"{half:9} {how:29} {total - len(missed):4} of {total:4} caught")
            wrong += missed
        share = 1 - missed_all / total_all
        print(f"{half:9} all formats {share:30.1%} caught, at least {LEAST:.0%} wanted")
        good &= share >= LEAST
        if show and half == "seen":
            print("\n".join(f"    {line}" for line in wrong))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
