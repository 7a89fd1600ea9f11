"""Reads how-to questions that were written for this project from tables of contents, before any search."""

from pathlib import Path

from glow.errors import InputError
from research.folders import read_records
from research.questions.collection import Documents
from research.questions.faq import Question

__all__ = ["FOLDER", "howto_questions"]

FOLDER = Path(__file__).parent / "howto"
MAX_ANSWERS = 4


def howto_questions(path: Path, documents: Documents) -> list[Question]:
    """Reads questions, and checks their answers against the documents.

    Args:
        path: JSON Lines with `id`, `text` and `answers`, one to four document ids.
        documents: the dataset's documents.

    Returns:
        The questions in the file's order.

    Raises:
        InputError: if an answer is not a document, a question does not have one to four, or an id is used twice; the
            message names them.
    """
    questions: dict[str, Question] = {}
    faults: list[str] = []
    for record in read_records(path):
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
        raise InputError(f"{path.name}: " + "; ".join(faults))
    return list(questions.values())
