"""Codex's own memories, which a bound launch neither reads nor changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Facts

FOLDERS: Final = ("memories/", "memories/rollout_summaries/")


def folders(codex_home: str) -> tuple[str, ...]:
    """Return the folders in which Codex keeps memories."""
    return tuple(f"{codex_home}/{folder}" for folder in FOLDERS)


def unread_notice(request: AgentRequest, codex_home: str, facts: Facts) -> tuple[str, ...]:
    """Say how many files of Codex's own memory a new conversation does not read."""
    if request.resume is not None:
        return ()
    count = 0
    for folder in folders(codex_home):
        lines = (facts.files.get(folder) or b"").splitlines()
        count += sum(line.partition(b"\t")[0].endswith(b".md") for line in lines)
    if not count:
        return ()
    files = "1 file of it is" if count == 1 else f"{count} files of it are"
    said = f"{files} not read in this conversation and left alone"
    return (f"Codex's own memory is off: {said}, in {codex_home}/memories",)
