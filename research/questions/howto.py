"""How-to questions that were written for this project, from tables of contents and before any search."""

import json
from pathlib import Path

from research.questions.collection import Documents
from research.questions.faq import Question

__all__ = ["UnknownAnswerError", "howto_questions"]

FOLDER = Path(__file__).parent / "howto"
MAX_ANSWERS = 4


class UnknownAnswerError(ValueError):
    """A question names an answer that is no document of its collection."""


def howto_questions(path: Path, documents: Documents) -> list[Question]:
    """Reads questions, and compares their answers with the documents.

    Args:
        path: JSON lines with `id`, `text` and `answers`, one to four document ids.
        documents: the collection's.

    Returns:
        The questions in the file's order.

    Raises:
        UnknownAnswerError: an answer is no document, a question has none or more than four, or an id is used twice; the
            message names them.
    """
    questions: dict[str, Question] = {}
    faults: list[str] = []
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        record = json.loads(line)
        question = Question(record["id"], record["text"], tuple(record["answers"]))
        if question.id in questions:
            faults.append(f"{question.id}: the id is used twice")
        if not 1 <= len(question.answers) <= MAX_ANSWERS:
            faults.append(f"{question.id}: {len(question.answers)} answers, not 1 to {MAX_ANSWERS}")
        faults += [
            f"{question.id}: no document {each}" for each in question.answers if each not in documents.by_id
        ]
        questions[question.id] = question
    if faults:
        raise UnknownAnswerError(f"{path.name}: " + "; ".join(faults))
    return list(questions.values())
