"""Logs as JSON lines on stderr; fields of a line go into `extra={"fields": {…}}`."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

__all__ = ["JsonFormatter", "configure_logging"]


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, then the line's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a value that JSON lacks is written as text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except orjson.JSONEncodeError:  # a lone surrogate in a message must not cost the line
            return orjson.dumps({key: ascii(value) for key, value in line.items()}).decode()


def configure_logging(level: str) -> None:
    """Sends every logger of the process, uvicorn's too, to stderr as JSON.

    Args:
        level: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # They speak of every event-loop detail, of use only to their own authors.
    for name in ("asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
