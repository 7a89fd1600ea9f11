"""Explanations of a query's hits, from one index version."""

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
    """Why documents were found.

    Attributes:
        query: what the query tower read, and where it looked.
        documents: the same of each document, in order.
        left_out: a word of the query -> what leaving it out does to each document's cosine; empty if not asked for.
        reranked: where the re-ranker looked, of each document that it read, by its place; empty without re-ranking.
        answered: what each document answers the query's words with; empty if no tokens were compared.
    """

    query: Explanation
    documents: tuple[Explanation, ...]
    left_out: tuple[TermAblation, ...] = ()
    reranked: Mapping[int, tuple[AttendedWord, ...]] = field(default_factory=dict)
    answered: tuple[tuple[AnsweredWord, ...], ...] = ()

    @property
    def cosines(self) -> tuple[float, ...]:
        """Cosine of the query with each document, from the vectors of these runs."""
        return tuple(float(self.query.vector @ document.vector) for document in self.documents)


def answers_of(
    index: Index,
    query: EncodedQuery,
    tokens: QueryTokens,
    hits: tuple[NDArray[np.int64], Mapping[int, int]],
    read: Sequence[Document],
) -> tuple[tuple[AnsweredWord, ...], ...]:
    """What each hit answers the words of the query with.

    Args:
        index: with token vectors.
        query: its vector, which tells a document's best passage.
        tokens: of the query.
        hits: rows int64 [m], and document row -> row of its best passage, if the search found it.
        read: [m], what the tower read of each.
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
        NotAvailableError: if the index was built without.
    """
    if index.explainer is None:
        raise NotAvailableError(
            f"index {index.version} holds no explain graphs; build it again without --no-explain, from a model that "
            "has them (glow export-model --add-explain gives them to an older one)"
        )
    return index.explainer


def explain(
    index: Index,
    query: str,
    documents: Sequence[Document],
    leave_one_out: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Explanations:
    """Explains a query and documents; blocks for about as long as it takes to encode them.

    Args:
        index: whose towers and term table are used.
        query: with at least one word.
        documents: hits; a passage as a document of its own.
        leave_one_out: whether to leave out each word of the query as well.
        check: called before every document and batch; what it raises ends the work.

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
