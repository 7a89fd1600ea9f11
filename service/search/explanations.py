"""Cached query vectors, and explanations of a query and its hits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from glow.index import Index
from glow.records import Document
from glow.runtime import Explainer, Explanation, TermAblation
from glow.search import AttendedWord
from glow_service.errors import NotAvailableError


@dataclass(frozen=True, slots=True, eq=False)
class Explanations:
    """Explanations of a query and its hits."""

    query: Explanation  # weights and attention of the query encoder
    documents: tuple[Explanation, ...]  # those of the document encoder, in order
    # Change of each document's cosine without each query word.
    left_out: tuple[TermAblation, ...] = ()
    # Position of a re-ranked document -> attention of the re-ranker.
    reranked: Mapping[int, tuple[AttendedWord, ...]] = field(default_factory=dict)

    @property
    def cosines(self) -> tuple[float, ...]:
        """Cosine of the query with each document, from the vectors of the explaining encoders."""
        return tuple(float(self.query.vector @ document.vector) for document in self.documents)


def require_explainer(index: Index) -> Explainer:
    """The explainer of an index."""
    if index.explainer is None:
        raise NotAvailableError(
            f"index {index.version} has no explain graphs; build it again without --no-explain, from a model that "
            "has them (glow export-model writes them)"
        )
    return index.explainer


def explain(
    index: Index,
    query: str,
    documents: Sequence[Document],  # hits; a passage is a separate document
    leave_one_out: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Explanations:
    """Explains a query with a word, and documents; `check`, which may raise, is called before each one and batch."""
    explainer = require_explainer(index)
    of_query, of_documents = explainer.explain_query(query), explainer.explain_documents(documents, check)
    left_out: list[TermAblation] = []
    if leave_one_out and of_documents:
        check()
        left_out = explainer.leave_one_out(query, np.stack([each.vector for each in of_documents]))
    return Explanations(of_query, tuple(of_documents), tuple(left_out))
