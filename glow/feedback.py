"""Feedback of users on search results: clicks and relevance judgments as JSON lines, stored beside the query log.

`glow_service.telemetry` writes them; `glow learn-clicks` reads them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from glow.collection import parse_object
from glow.errors import RecordError
from glow.query_log import SkippedLines, read_log_lines

__all__ = ["FEEDBACK_KINDS", "Feedback", "FeedbackKind", "read_feedback"]

FeedbackKind = Literal["click", "like", "dislike"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = get_args(FeedbackKind)


@dataclass(frozen=True, slots=True)
class Feedback:
    """One click or relevance judgment.

    Attributes:
        request_id: id of the search that found the document.
        id: the document's id.
        kind: what the user did.
        rank: rank of the hit, from 1, as the client sent it; None if it did not.
        dwell_s: seconds that the user spent on the document; None if unknown.
        source: pseudonym of the user within one salt period.
        time: UTC, ISO 8601; the writer sets it if it is "".
        period: salt period of `source`. A user has another pseudonym in each period.
    """

    request_id: str
    id: str
    kind: FeedbackKind
    rank: int | None = None
    dwell_s: float | None = None
    source: str = ""
    time: str = ""
    period: str = ""

    def values(self) -> dict[str, Any]:
        """The line as JSON values, in the order in which it is written."""
        return {
            "time": self.time,
            "request_id": self.request_id,
            "id": self.id,
            "kind": self.kind,
            "rank": self.rank,
            "dwell_s": self.dwell_s,
            "source": self.source,
            "period": self.period,
        }


def read_feedback(path: Path, skipped: SkippedLines | None = None) -> Iterator[Feedback]:
    """Reads a feedback log from its oldest line on, as `read_query_log` does.

    Args:
        path: the file.
        skipped: counts lines that cannot be read.

    Raises:
        InputError: if a file cannot be read.
    """
    for line, place in read_log_lines(path):
        try:
            feedback = _parse(line, place)
        except RecordError as error:
            if skipped is not None:
                skipped.note(error)
            continue
        yield feedback


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
