"""Show what the demo's steps came to, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amux.launcher.demo.scene import Row

HEADINGS: Final = (
    "step",
    "agent",
    "binding",
    "native memory off (the agent's own answer)",
    "tools",
    "what it did",
    "revision",
    "s",
)


def table(rows: tuple[Row, ...]) -> str:
    """Return the rows as aligned text; evidence takes as many lines as there are controls."""
    cells = [tuple([heading] for heading in HEADINGS)]
    cells.extend(_cells(row) for row in rows)
    widths = [
        max(len(line) for row in cells for line in row[column]) for column in range(len(HEADINGS))
    ]
    lines = []
    for row in cells:
        for height in range(max(len(cell) for cell in row)):
            texts = (
                (cell[height] if height < len(cell) else "").ljust(width)
                for cell, width in zip(row, widths, strict=True)
            )
            lines.append("  ".join(texts).rstrip())
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def _cells(row: Row) -> tuple[list[str], ...]:
    report = row.report
    return (
        [row.step.title],
        [f"{report.provider} {report.agent_version}"],
        [report.binding or "none"],
        [f"{one.control} = {one.observed}" for one in report.controls],
        [report.tools],
        [row.step.did],
        [f"{row.before[:12]} -> {row.after[:12]}" if row.before != row.after else row.after[:12]],
        [f"{row.seconds:.1f}"],
    )
