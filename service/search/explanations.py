"""Explanations of the hits of a query."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from glow.index import Index
from glow.records import Document
from glow.runtime import Explainer, Explanation, TermAblation
from glow.search import AnsweredWord, AttendedWord, EncodedQuery, QueryTokens, answered_words, rows_read
from glow_service.errors import NotAvailableError

__all__ = ["Explanations", "answers_of", "explain", "require_explainer"]


@dataclass(frozen=True, slots=True, eq=False)
class Explanations:
    """Explanations of a query and its hits.

    Attributes:
        query: weights and attention of the query encoder.
        documents: weights and attention of the document encoder, for each document in order.
        left_out: change of each document's cosine without each query word; empty if not requested.
        reranked: position of a re-ranked document -> attention of the re-ranker; empty without re-ranking.
        answered: most similar word of each document for each query word; empty if no tokens were compared.
    """

    query: Explanation
    documents: tuple[Explanation, ...]
    left_out: tuple[TermAblation, ...] = ()
    reranked: Mapping[int, tuple[AttendedWord, ...]] = field(default_factory=dict)
    answered: tuple[tuple[AnsweredWord, ...], ...] = ()

    @property
    def cosines(self) -> tuple[float, ...]:
        """Cosine of the query with each document, from the vectors of the explaining encoders."""
        return tuple(float(self.query.vector @ document.vector) for document in self.documents)


def answers_of(
    index: Index,
    query: EncodedQuery,
    tokens: QueryTokens,
    hits: tuple[NDArray[np.int64], Mapping[int, int]],
    read: Sequence[Document],
) -> tuple[tuple[AnsweredWord, ...], ...]:
    """The words of each hit that are most similar to the query's words.

    Args:
        index: index with token vectors.
        query: the encoded query, whose vector selects a document's best passage.
        tokens: tokens of the query.
        hits: rows int64 [m], and document row -> row of its best passage, if the search found it.
        read: [m], the documents as the encoder read them.
    """
    documents, passages = hits
    rows = rows_read(index, documents, passages, query.vector).tolist()
    preprocess = index.preprocessor.document
    return tuple(
        answered_words(index, tokens, row, preprocess(document))
        for row, document in zip(rows, read, strict=True)
    )


def require_explainer(index: Index) -> Explainer:
    """The explainer of an index.

    Raises:
        NotAvailableError: if the index has no explain graphs.
    """
    if index.explainer is None:
        raise NotAvailableError(
            f"index {index.version} has no explain graphs; build it again without --no-explain, from a model that "
            "has them (glow export-model --add-explain adds them to an older one)"
        )
    return index.explainer


def explain(
    index: Index,
    query: str,
    documents: Sequence[Document],
    leave_one_out: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Explanations:
    """Explains a query and documents; blocks for about as long as encoding them takes.

    Args:
        index: index whose encoders and term statistics are used.
        query: query with at least one word.
        documents: hits; a passage is a separate document.
        leave_one_out: whether to also measure the effect of removing each query word.
        check: called before every document and batch; it may raise to end the work.

    Raises:
        NotAvailableError: if the index was built without explain graphs.
        ArtifactError: if a graph cannot be opened.
    """
    explainer = require_explainer(index)
    asked, explained = explainer.explain_query(query), explainer.explain_documents(documents, check)
    left_out: list[TermAblation] = []
    if leave_one_out and explained:
        check()
        left_out = explainer.leave_one_out(query, np.stack([explanation.vector for explanation in explained]))
    return Explanations(asked, tuple(explained), tuple(left_out))
