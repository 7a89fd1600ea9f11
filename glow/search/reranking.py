"""Re-ranking: the first hits of a search are scored again, jointly with the query, by a re-ranker over stored token embeddings.

Source: PreTTR (re-ranking of first-stage hits). The final score is the first-stage score plus a weight times the re-ranker's.
It depends on no other hit, so a filter does not change it.

    k   first-stage hits        c   hits of them to re-rank      B   documents of a batch
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glow.errors import StoreError
from glow.index import Fusion, Index, best
from glow.index.postings import POSTINGS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.records import Document
from glow.search.retrievers import RankedDocuments, Retriever, rows_read
from glow.text import QUERY, WeightedTokens, batches_by_length

MAX_DEPTH = 200
BATCH_TOKENS = 2048
FIRST_PAGE = 10
"""Number of hits that are re-ranked before all others: people look at them even if time runs out."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """Options of re-ranking."""

    depth: int = 50  # number of hits to re-rank, 1 to `MAX_DEPTH`; fewer if fewer are found


def score_unit(index: Index, retriever: Retriever, fusion: Fusion | None) -> float:
    """The unit of the re-ranker's scores: the scale of a retriever's scores, > 0.

    It is 1 for dense and hybrid scores, the largest impact for lexical ones, and that of the first rank for reciprocal ranks.
    """
    if retriever == "lexical":
        return index[POSTINGS].largest or 1.0
    if retriever == "hybrid" and (fusion or index.fusion).method == "rrf":
        return 1.0 / ((fusion or index.fusion).k + 1)
    return 1.0


def rerank(
    index: Index,  # with a re-ranker and stored token embeddings
    text: str,  # the query as it was searched; not without words
    ranked: RankedDocuments,  # first-stage hits
    options: Reranking,
    unit: float = 1.0,  # see `score_unit`
    # float32 [D], of the query, for the best passages of documents that only lexical retrieval found; None: the first
    vector: NDArray[np.float32] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[RankedDocuments, bool]:
    """Re-ranks the first hits of a search; the others stay in order behind them, and their part `rerank` is NaN.

    Also returns whether all requested hits were re-ranked.
    """
    reranker, states = index.reranker, index[TOKEN_EMBEDDINGS]
    assert reranker is not None  # noqa: S101 - a request for it is refused earlier
    count = min(options.depth, len(ranked.rows))
    own = np.full(len(ranked.rows), np.nan, np.float32)
    if count:
        at = rows_read(index, ranked.rows[:count], ranked.passages, vector)
        query = reranker.query(text)
        with suppress(StoreError):  # as if time ran out
            for places in _batches(states.lengths(at)):
                if is_over():
                    break
                stored, mask = states.read(at[places])
                own[places] = reranker.score(query, stored, mask)
    read = replace(ranked, parts={**ranked.parts, "rerank": own})
    is_whole = int(np.count_nonzero(~np.isnan(own))) == count
    return mixed(read, index.rerank_weight.share * unit, index.order), is_whole


@dataclass(frozen=True, slots=True)
class AttendedWord:
    """A word of a query or document, with the fraction in [0, 1] of the attention of [CLS] in the last joined layer that it got."""

    field: str  # of the schema, or `query`
    word: str  # as preprocessing yields it
    attention: float  # mean over heads, summed over the word's subword tokens at all its places in the field


def attended_words(
    index: Index,  # with a re-ranker and stored token embeddings
    text: str,  # the query as it was searched
    rows: Sequence[int],  # of documents, at least one
    passages: Sequence[int | None],  # row of each document's re-ranked passage; None: read whole, or unknown
    documents: Sequence[Document],  # the same, as when they were stored
) -> list[tuple[AttendedWord, ...]]:
    """Attention of the joined layers, for each document: words of the query and the document, most attended first."""
    reranker, states = index.reranker, index[TOKEN_EMBEDDINGS]
    assert reranker is not None  # noqa: S101 - a request for it is refused earlier
    query = reranker.query(text)
    known = {row: own for row, own in zip(rows, passages, strict=True) if own is not None}
    stored, mask = states.read(rows_read(index, np.array(rows, np.int64), known, None))
    shares = reranker.attention(query, stored, mask)
    attended = []
    for document, row in zip(documents, shares, strict=True):
        tokens, names = reranker.document_tokens(document), reranker.preprocessor.schema.names
        words = _gathered(query.tokens, (QUERY,), row[: len(query.tokens)])
        words += _gathered(tokens, names, row[len(query.tokens) :][: len(tokens)])
        attended.append(tuple(sorted(words, key=lambda word: -word.attention)))
    return attended


def _gathered(
    tokens: WeightedTokens, names: Sequence[str], attention: NDArray[np.float32]
) -> list[AttendedWord]:
    """Gathers tokens into words; each field ends with a [SEP], for any field id."""
    shares: dict[tuple[str, str], float] = {}
    is_special = tokens.word_ids < 0
    # A query's first special token is [CLS], which ends no field.
    places = np.minimum(is_special.cumsum() - is_special[0], len(names) - 1)
    columns = (tokens.word_ids, places, attention)
    for number, place, share in zip(*(column.tolist() for column in columns), strict=True):
        if number >= 0:
            key = names[place], tokens.words[number]
            shares[key] = shares.get(key, 0.0) + share
    return [AttendedWord(field, word, share) for (field, word), share in shares.items()]


def mixed(ranked: RankedDocuments, share: float, order: NDArray[np.uint32] | None) -> RankedDocuments:
    """Re-ranked hits by the weighted sum of both scores, then the other hits in their order."""
    own, scores = ranked.parts["rerank"], ranked.scores.astype(np.float32)
    read = np.flatnonzero(~np.isnan(own))
    rest = np.setdiff1d(np.arange(len(scores)), read)
    both = (scores[read] + np.float32(share) * own[read]).astype(np.float32)
    first_scores, first_rows = best(both, ranked.rows[read], max(len(read), 1), order)
    rest_scores = scores[rest]
    if len(read) and len(rest):
        # The rest must score less than the last re-ranked hit: pages are cut from one descending list, and run files are sorted.
        highest = np.nextafter(first_scores[-1], np.float32(-np.inf))
        rest_scores = np.minimum(rest_scores - max(rest_scores[0] - highest, np.float32(0.0)), highest)
    rows = np.concatenate([first_rows, ranked.rows[rest]])
    by_row = np.argsort(ranked.rows)
    places = by_row[np.searchsorted(ranked.rows, rows, sorter=by_row)]
    return replace(ranked.take(places), scores=np.concatenate([first_scores, rest_scores]))


def _batches(lengths: NDArray[np.int64]) -> Iterator[list[int]]:
    """Places of the hits in batches of similar lengths, those of the first page before all others."""
    for start, stop in ((0, FIRST_PAGE), (FIRST_PAGE, len(lengths))):
        for places in batches_by_length(lengths[start:stop].tolist(), BATCH_TOKENS):
            yield [start + place for place in places]
