"""Files of relevance judgments (qrels), in BEIR's or TREC's format.

BEIR: a header, then `query-id`, `corpus-id` and grade, separated by tabs. TREC: `query-id 0 document-id grade`,
separated by white space and without a header, as in MS MARCO and the TREC tracks.
"""

from pathlib import Path

from glow.collection import read_qrels
from glow.errors import InputError, RecordError
from glow.records import Qrel

__all__ = ["read_judgements"]


def read_judgements(path: Path) -> list[Qrel]:
    """Reads a file of relevance judgments; its first line decides the format.

    Raises:
        InputError: if the file cannot be read, or holds no judgments.
        RecordError: if a line is not a judgment.
    """
    qrels = _trec(path) if _is_trec(path) else list(read_qrels(path))
    if not qrels:
        raise InputError(f"{path} has no judgments: expected rows below its header")
    return qrels


def _is_trec(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = next((line.split() for line in file if line.strip()), [])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return len(first) == 4 and _grade(first[3].decode("utf-8", "replace")) is not None


def _trec(path: Path) -> list[Qrel]:
    qrels = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name}: not UTF-8") from error
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        grade = _grade(columns[3]) if len(columns) == 4 else None
        if grade is not None:
            qrels.append(Qrel(columns[0], columns[2], grade))
        elif columns:
            raise RecordError(
                f"{path.name} line {number}: expected `query-id 0 document-id grade`, found {line.strip()!r:.120}"
            )
    return qrels


def _grade(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
