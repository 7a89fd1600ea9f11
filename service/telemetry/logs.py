"""Logs on stderr, as JSON Lines or as text; fields of a line go into `extra={"fields": {…}}`."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

__all__ = ["JsonFormatter", "LogForm", "TextFormatter", "configure_logging"]

LogForm = Literal["auto", "json", "text"]


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, then the line's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as JSON; values of other types become strings."""
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
        except orjson.JSONEncodeError:  # such as a lone surrogate in a message
            return orjson.dumps({key: ascii(value) for key, value in line.items()}).decode()


class TextFormatter(logging.Formatter):
    """A line of text: local time of day, level except info, message, then the fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as text; control characters, which a terminal would obey, are escaped."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        fields = "".join(f"  {name}={value}" for name, value in getattr(record, "fields", {}).items())
        text = f"{level}{record.getMessage()}{fields}"
        line = f"{moment}  " + "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str, form: LogForm = "json") -> None:
    """Sends all logs of the process, including uvicorn's, to stderr.

    Args:
        level: debug, info, warning or error.
        form: `json`, `text`, or `auto`: text if stderr is a terminal.
    """
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    # In text, leave out uvicorn's lines about stages of startup and shutdown.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING if is_text else logging.NOTSET)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their info and debug lines are not useful here.
    for name in ("asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
