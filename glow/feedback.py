"""Feedback of users on search results: clicks and relevance judgments as JSON lines, stored beside the query log.

`glow_service.telemetry` writes them; `glow learn-clicks` reads them.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from glow.collection import parse_object
from glow.errors import RecordError
from glow.query_log import SkippedLines, read_log

FeedbackKind = Literal["click", "like", "dislike"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = get_args(FeedbackKind)


@dataclass(frozen=True, slots=True)
class Feedback:
    """One click or relevance judgment."""

    request_id: str  # of the search that found the document
    id: str  # the document's id
    kind: FeedbackKind  # what the user did
    rank: int | None = None  # of the hit, from 1, as the client sent it; None if it did not
    dwell_s: float | None = None  # seconds that the user spent on the document; None if unknown
    source: str = ""  # pseudonym of the user within one salt period
    time: str = ""  # UTC, ISO 8601; the writer sets it if it is ""
    period: str = ""  # salt period of `source`; a user has another pseudonym in each period

    def values(self) -> dict[str, Any]:
        """The line as JSON values, the time first."""
        return {"time": self.time, **asdict(self)}


def read_feedback(path: Path, skipped: SkippedLines | None = None) -> Iterator[Feedback]:
    """Reads a feedback log from its oldest line on, as `read_query_log` does."""
    return read_log(path, _parse, skipped)


def _parse(line: bytes, place: str) -> Feedback:
    try:
        feedback = Feedback(**parse_object(line))
        texts = (feedback.request_id, feedback.id, feedback.source, feedback.time, feedback.period)
        if feedback.kind not in FEEDBACK_KINDS or not all(isinstance(each, str) for each in texts):
            raise TypeError("a value is of the wrong type")
        if not feedback.period:
            raise TypeError("'period' is missing")
        if feedback.dwell_s is not None and not isinstance(feedback.dwell_s, int | float):
            raise TypeError("'dwell_s' is not a number")
    except (RecordError, TypeError) as error:
        raise RecordError(f"{place}: not a line of a feedback log: {error}") from error
    return feedback
