"""The first hits of a search read again, word by word together with the query, by a re-ranker over stored states.

Source: PreTTR (re-ranking of a first search's hits). The final score is the first search's and a share of the re-ranker's, so
it depends on no other hit: a filter leaves it as it is.

    k   hits of the first search        c   of them, those that are read again      B   documents of a batch
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index import Fusion, Mixture, Searchable, best
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.records import Document
from glow.runtime import Reranker, RerankMethod
from glow.search.dense_scores import rows_read
from glow.search.retrievers import RankedDocuments, Retriever
from glow.text import QUERY, WeightedTokens, batches_by_length, field_words

__all__ = [
    "MAX_DEPTH",
    "AttendedWord",
    "Rerankable",
    "Reranking",
    "attended_words",
    "rerank",
    "score_unit",
]

MAX_DEPTH = 200
BATCH_TOKENS = 2048
FIRST_PAGE = 10
"""Hits that are read before all others: where time runs out, they are what people look at."""


class Rerankable(Searchable, Protocol):
    """An index version that holds what a re-ranker reads."""

    @property
    def reranker(self) -> Reranker | None: ...  # noqa: D102 - `Index` describes both
    @property
    def mixture(self) -> Mixture: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Reranking:
    """What is asked for.

    Attributes:
        depth: hits that are read again, 1 to `MAX_DEPTH`; fewer where fewer are found.
        method: by which part of the model.
    """

    depth: int = 50
    method: RerankMethod = "join"


def score_unit(index: Rerankable, retriever: Retriever, fusion: Fusion | None) -> float:
    """What one of the re-ranker's points is measured in: the scale of a retriever's scores, > 0.

    Cosines and their mixture with words have 1; words alone the largest impact of any; reciprocal ranks that of the first.

    Args:
        index: that is searched.
        retriever: what gave the scores.
        fusion: of a hybrid search; None: the index' own.
    """
    if retriever == "lexical":
        return index[POSTINGS].largest or 1.0
    if retriever == "hybrid" and (fusion or index.fusion).method == "rrf":
        return 1.0 / ((fusion or index.fusion).k + 1)
    return 1.0


def rerank(
    index: Rerankable,
    text: str,
    ranked: RankedDocuments,
    wanted: Reranking,
    unit: float = 1.0,
    vector: NDArray[np.float32] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[RankedDocuments, bool]:
    """Orders the first hits of a search again; what follows them stays as it is, behind them.

    Args:
        index: with a re-ranker and term representations.
        text: the query as it was searched; it holds a word.
        ranked: what was found.
        wanted: how many to read again, and how.
        unit: as `score_unit`.
        vector: float32 [D], of the query, which tells the best passage of a document that words alone found; without one, that is its
            first.
        is_over: asked before every batch; where it says so, hits that were not read stay behind those that were, in their order.

    Returns:
        The ranking, with the part `rerank` (NaN for what was not read), and whether all was read that was asked for.
    """
    reranker, states = index.reranker, index[TOKEN_EMBEDDINGS]
    assert reranker is not None  # noqa: S101 - a request for it is refused before
    count = min(wanted.depth, len(ranked.rows))
    own = np.full(len(ranked.rows), np.nan, np.float32)
    if count:
        at = rows_read(index, ranked.rows[:count], ranked.passages, vector)
        query = reranker.query(text)
        for places in _batches(states.lengths(at)):
            if is_over():
                break
            stored, mask = states.read(at[places])
            own[places] = reranker.score(query, stored, mask, wanted.method)
    read = replace(ranked, parts={**ranked.parts, "rerank": own})
    is_whole = int(np.count_nonzero(~np.isnan(own))) == count
    return mixed(read, index.mixture.share * unit, index.order), is_whole


@dataclass(frozen=True, slots=True)
class AttendedWord:
    """A word of a query or document, and the share in [0, 1] of the attention of [CLS] in the last joined layer that it got.

    Attributes:
        field: of the schema, or `query`.
        word: as preprocessing yields it.
        attention: mean over heads; of the word's pieces at all its places in the field.
    """

    field: str
    word: str
    attention: float


def attended_words(
    index: Rerankable,
    text: str,
    rows: Sequence[int],
    passages: Sequence[int | None],
    documents: Sequence[Document],
) -> list[tuple[AttendedWord, ...]]:
    """Where the joined layers looked, for each document: words of the query and the document, most attended first.

    Args:
        index: with a re-ranker and term representations.
        text: the query as it was searched.
        rows: of documents, at least one.
        passages: row of each document's passage that was read; None where it was read whole, or is not known.
        documents: the same, as they were read when they were stored.
    """
    reranker, states = index.reranker, index[TOKEN_EMBEDDINGS]
    assert reranker is not None  # noqa: S101 - a request for it is refused before
    query = reranker.query(text)
    at = np.array(rows, np.int64)
    if index.holds(PASSAGES):
        first = index[PASSAGES].first[at].tolist()
        at = np.array(
            [own if own is not None else one for own, one in zip(passages, first, strict=True)], np.int64
        )
    stored, mask = states.read(at)
    shares = reranker.attention(query, stored, mask)
    found = []
    for document, row in zip(documents, shares, strict=True):
        tokens = reranker.document_tokens(document)
        words = _gathered(query.tokens, (QUERY,), row[: len(query.tokens)])
        own = row[len(query.tokens) :][: len(tokens)]
        words += _gathered(
            tokens,
            tuple(field_words(document, reranker.preprocessor.schema, reranker.preprocessor.pieces)),
            own,
        )
        found.append(tuple(sorted(words, key=lambda word: -word.attention)))
    return found


def _gathered(
    tokens: WeightedTokens, names: Sequence[str], attention: NDArray[np.float32]
) -> list[AttendedWord]:
    """Tokens as words; each field ends with a [SEP], whatever its field id is."""
    shares: dict[tuple[str, str], float] = {}
    is_special = tokens.word_ids < 0
    # Of a query the first special token is [CLS], which no field ends with.
    places = np.minimum(is_special.cumsum() - is_special[0], len(names) - 1)
    for number, place, share in zip(
        tokens.word_ids.tolist(), places.tolist(), attention.tolist(), strict=True
    ):
        if number >= 0:
            key = names[place], tokens.words[number]
            shares[key] = shares.get(key, 0.0) + share
    return [AttendedWord(field, word, share) for (field, word), share in shares.items()]


def mixed(ranked: RankedDocuments, share: float, order: NDArray[np.uint32] | None) -> RankedDocuments:
    """The hits that were read by both scores, and the others behind them in their order.

    Args:
        ranked: best first, with the part `rerank`: NaN for what was not read.
        share: times the re-ranker's score.
        order: uint32 [n], each document's place among equals; None: its row.
    """
    own, scores = ranked.parts["rerank"], ranked.scores.astype(np.float32)
    read = np.flatnonzero(~np.isnan(own))
    rest = np.setdiff1d(np.arange(len(scores)), read)
    both = (scores[read] + np.float32(share) * own[read]).astype(np.float32)
    first_scores, first_rows = best(both, ranked.rows[read], max(len(read), 1), order)
    rest_scores = scores[rest]
    if len(read) and len(rest):
        # All of the rest score less than the last that was read: pages are cut from one descending list, and run files are sorted.
        highest = np.nextafter(first_scores[-1], np.float32(-np.inf))
        rest_scores = np.minimum(rest_scores - max(rest_scores[0] - highest, np.float32(0.0)), highest)
    rows = np.concatenate([first_rows, ranked.rows[rest]])
    by_row = np.argsort(ranked.rows)
    places = by_row[np.searchsorted(ranked.rows, rows, sorter=by_row)]
    parts = {name: values[places] for name, values in ranked.parts.items()}
    return RankedDocuments(np.concatenate([first_scores, rest_scores]), rows, parts, ranked.passages)


def _batches(lengths: NDArray[np.int64]) -> Iterator[list[int]]:
    """Places of the hits in batches of like lengths, those of the first page before all others."""
    for start, stop in ((0, FIRST_PAGE), (FIRST_PAGE, len(lengths))):
        for places in batches_by_length(lengths[start:stop].tolist(), BATCH_TOKENS):
            yield [start + place for place in places]
