"""Questions of a FAQ with the documents that their answers link to, and the documents without the FAQ."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from research.questions.collection import Documents, free_id, make_documents
from research.questions.part import Part, slug

__all__ = ["Question", "faq_questions", "is_question"]

MIN_QUESTION_WORDS = 3
MAX_TARGETS = 6
"""If an answer links to more sections, the relevant one is unknown."""
MAX_QUESTIONS_OF_A_TARGET = 5
"""A target of more answers is a term that they mention (`list`), and not relevant to them."""
_ASKS = re.compile(
    r"(?i)^\W*(how|why|what|where|when|which|who|whose|can|could|do|does|did|is|are|was|has|have|should|will|would|i|i[\u2019']m|my)\b"
)


@dataclass(frozen=True)
class Question:
    """A question with its relevant documents.

    Attributes:
        id: page and heading in lower case.
        text: the original text.
        answers: document ids in link order.
    """

    id: str
    text: str
    answers: tuple[str, ...]


def is_question(heading: str) -> bool:
    """Whether a heading of a FAQ is a question: a question mark, a question word, or a problem ("I cannot ...")."""
    long_enough = len(heading.split()) >= MIN_QUESTION_WORDS
    return (
        long_enough
        and not heading.endswith(("…", "..."))
        and ("?" in heading or _ASKS.match(heading) is not None)
    )


def faq_questions(
    parts: Sequence[Part], pages: str, *, own_answers: bool, whole_pages: str = ""
) -> tuple[Documents, list[Question]]:
    """Removes the FAQ's pages from the documents, and judges its questions by the links of their answers.

    Args:
        parts: parts of all pages.
        pages: pattern of the FAQ's pages.
        own_answers: whether an answer without links becomes a document, without its question.
        whole_pages: pattern of pages that a link without an anchor may mean.

    Returns:
        The documents, and the questions that have at least one relevant document.
    """
    outside = [part for part in parts if not re.search(pages, part.page)]
    linked = make_documents(outside)
    headings = [part for part in parts if re.search(pages, part.page) and is_question(part.heading)]
    answers = [_answer(heading, parts) for heading in headings]
    targets = [
        linked.targets((link for part in answer for link in part.links), whole_pages) for answer in answers
    ]
    counts = Counter(target for ids in targets for target in ids)
    by_link: list[tuple[Part, list[str]]] = []
    by_itself: list[tuple[Part, list[Part]]] = []
    for heading, answer, ids in zip(headings, answers, targets, strict=True):
        specific = [target for target in ids if counts[target] <= MAX_QUESTIONS_OF_A_TARGET]
        if specific and len(ids) <= MAX_TARGETS:
            by_link.append((heading, specific))
        elif own_answers and not ids:
            by_itself.append((heading, [_without_question(part, heading) for part in answer]))
    documents = make_documents([*outside, *(part for _, answer in by_itself for part in answer)])
    own = [(heading, [part.document for part in answer if part.document]) for heading, answer in by_itself]
    return documents, _questions([*by_link, *own])


def _answer(question: Part, parts: Sequence[Part]) -> list[Part]:
    """The question's part and the sections below it, except those that are questions or below one."""
    depth = len(question.parents) + 1
    below = (part for part in parts if part is not question and part.is_below(question))
    return [
        question,
        *(part for part in below if not any(map(is_question, [*part.parents[depth:], part.heading]))),
    ]


def _without_question(part: Part, question: Part) -> Part:
    """The part with a fixed anchor for its id, and without questions in title and address."""
    parents = [title for title in part.parents if not is_question(title)]
    heading = "" if part is question else part.heading
    return replace(part, heading=heading, parents=parents, anchors=[part.anchor, *part.anchors])


def _questions(judgments: Sequence[tuple[Part, list[str]]]) -> list[Question]:
    """The questions with relevant documents, without duplicate texts."""
    questions: dict[str, Question] = {}
    taken: set[str] = set()
    for heading, answers in judgments:
        text = " ".join(heading.heading.split())
        if answers and text.lower() not in questions:
            identifier = free_id(f"{heading.page}:{slug(text)}", taken)
            taken.add(identifier)
            questions[text.lower()] = Question(identifier, text, tuple(dict.fromkeys(answers)))
    return list(questions.values())
