"""Assigns questions to halves by their text, and writes BEIR directories with both halves."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from research.debian.books import book_pairs
from research.folders import write_folder
from research.questions.collection import Documents
from research.questions.faq import Question

__all__ = ["HALVES", "half_of", "questions_of_late_interaction", "write_collection"]

HALVES = ("dev", "test")


def half_of(text: str, earlier: Collection[str] = ()) -> str:
    """`dev` or `test` for a question, independent of the other questions.

    Args:
        text: the question; case and blanks are ignored.
        earlier: normalized questions of an earlier development split. If there are any, they are `dev` and all others
            `test`.
    """
    words = normalized(text)
    if earlier:
        return HALVES[words not in earlier]
    return HALVES[hashlib.sha256(words.encode()).digest()[0] % 2]


def normalized(text: str) -> str:
    """Lower case, one blank between words, no final question mark."""
    return " ".join(text.lower().split()).rstrip(" ?.")


def questions_of_late_interaction(roots: Iterable[Path]) -> set[str]:
    """Questions that may be in the dataset `faq`, on which late interaction was developed.

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
        folder: directory, created if missing; replaces files of an earlier build.
        documents: all documents.
        questions: questions with relevant documents among them.
        earlier: as for `half_of`.

    Returns:
        Numbers of documents, and of questions in each half.
    """
    found = documents.by_id.values()
    judged = {
        half: {each.id: each.answers for each in questions if half_of(each.text, earlier) == half}
        for half in HALVES
    }
    write_folder(
        folder,
        ({"_id": each.id, "url": each.url, "title": each.title, "text": each.text} for each in found),
        ({"_id": each.id, "text": each.text} for each in questions),
        judged,
    )
    return {"documents": len(found), **{half: len(answers) for half, answers in judged.items()}}
