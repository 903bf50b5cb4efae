"""Structured logs of the Hub: one JSON object a line on stderr, never content or credentials.

An exception is logged by its type and the frames that it passed; its message is left out,
since messages can quote what a caller sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ACCESS: Final = logging.getLogger("hub.access")
EVENTS: Final = logging.getLogger("hub.events")
LOG_BYTES: Final = 8 * 1024 * 1024
_FRAMES: Final = 12


class JsonLines(logging.Formatter):
    """Render a record as one line of JSON; `extra={"fields": {…}}` adds fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])[-_FRAMES:]
            line["frames"] = [f"{frame.filename}:{frame.lineno}" for frame in frames]
        return json.dumps(line, ensure_ascii=True)


def start_logging(path: Path | None = None) -> None:
    """Send every log record of this process to stderr, or to a file, as JSON lines.

    The file moves aside to `<name>.1` at 8 MiB, so a Hub that runs for months keeps 16.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("uvicorn.access", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def event(name: str, *, level: int = logging.INFO, **fields: str | int | bool | None) -> None:
    """Log one event of the Hub's life."""
    EVENTS.log(level, name, extra={"fields": fields})
