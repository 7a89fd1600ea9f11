"""Which half a question belongs to, by its text alone, and BEIR folders with both halves."""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from research.debian.books import book_pairs
from research.questions.collection import Documents
from research.questions.faq import Question

__all__ = ["HALVES", "half_of", "questions_of_late_interaction", "write_collection"]

HALVES = ("dev", "test")


def half_of(text: str, earlier: Collection[str] = ()) -> str:
    """`dev` or `test` for a question, the same on every machine whatever else a collection holds.

    Args:
        text: the question; case and blanks do not count.
        earlier: normalized questions of an earlier development split. If there are any, they are `dev` and all others
            `test`.
    """
    words = normalized(text)
    if earlier:
        return HALVES[words not in earlier]
    return HALVES[hashlib.sha256(words.encode()).digest()[0] % 2]


def normalized(text: str) -> str:
    """Small letters, one blank between words, no question mark at the end."""
    return " ".join(text.lower().split()).rstrip(" ?.")


def questions_of_late_interaction(roots: Iterable[Path]) -> set[str]:
    """Questions that may be in `faq` of `research.late.collections`, which late interaction's form was chosen with.

    Args:
        roots: unpacked packages.
    """
    pairs = (pair for root in roots for pair in book_pairs(root))
    return {
        normalized(pair.query.removesuffix("# TOC"))
        for pair in pairs
        if hashlib.sha256(f"q-{pair.id}".encode()).digest()[0] % 2 == 0
    }


def write_collection(
    folder: Path, documents: Documents, questions: Sequence[Question], earlier: Collection[str] = ()
) -> dict[str, int]:
    """Writes corpus, queries, and a file of judgments for each half.

    Args:
        folder: made where it is missing; files of an earlier build are replaced.
        documents: all of them are written.
        questions: with answers among the documents.
        earlier: as `half_of` takes it.

    Returns:
        Number of documents, and of questions of each half.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write(
        folder / "corpus.jsonl",
        (
            _json(_id=each.id, url=each.url, title=each.title, text=each.text)
            for each in documents.by_id.values()
        ),
    )
    _write(folder / "queries.jsonl", (_json(_id=each.id, text=each.text) for each in questions))
    counts = {"documents": len(documents.by_id)}
    for half in HALVES:
        chosen = [each for each in questions if half_of(each.text, earlier) == half]
        rows = [f"{each.id}\t{answer}\t1" for each in chosen for answer in each.answers]
        _write(folder / "qrels" / f"{half}.tsv", ["query-id\tcorpus-id\tscore", *rows])
        counts[half] = len(chosen)
    return counts


def _json(**values: str) -> str:
    return json.dumps(values, ensure_ascii=False)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
