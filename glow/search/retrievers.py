"""Retrievers: which documents match a query, best first; dense, lexical or hybrid.

The service, evaluation and tuning share this code: which index components a retriever needs, how many candidates it
gathers, and which of their scores are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glow.index import Fusion, Index, Ranking, RowMask, best, run_all
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES, Folded, PassageMap
from glow.index.postings import POSTINGS, ImpactsView
from glow.index.vectors import GPU_MAX_HITS, VECTORS, DenseView, SearchParams
from glow.search.calibration import probabilities
from glow.search.hybrid import HEAD, NO_ROWS, Scorer, coverage_scorer, fuse_rankings, lexical_share
from glow.search.query import NO_OTHERS, Others

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """Input of a hybrid search."""

    text: str  # for lexical retrieval
    vector: Vector  # float32 [D], L2-normalized
    others: Others = field(default_factory=dict)  # what else counts as a word of the text


def words_searched(index: Index, text: str, others: Others) -> list[str]:
    """The words of lexical retrieval: those of a text, as preprocessing yields them, and what else counts as them."""
    words, term = index.preprocessor.pieces.words(text), index.analyzer.term
    if not others:
        return words
    known, added = set(map(term, words)), dict[str, str]()
    for word in (word for name in words for each in others.get(name, ()) for word in each):
        added.setdefault(term(word), word)
    return [*words, *(word for name, word in added.items() if name not in known)]


def search_documents(
    dense: DenseView,  # one vector per passage
    passages: PassageMap,  # map from passages to documents
    vectors: NDArray[np.float32],  # float32 [n, D], L2-normalized
    k: int,  # documents per query, >= 1; fewer if fewer are allowed or found
    params: SearchParams | None = None,
    allowed: RowMask | None = None,  # documents that may be found; None: all
) -> list[Folded]:
    """Finds the k documents whose best passages are nearest to each query.

    First k times the average number of passages of a document are fetched, then twice as many until they suffice. An
    exact search has one order of all passages, so its first k documents are correct for any number fetched.
    """
    mask = None if allowed is None else passages.mask(allowed)
    most = len(passages) if mask is None else mask.count
    if dense.device == "cuda":
        most = min(most, GPU_MAX_HITS)
    finished: dict[int, Folded] = {}
    waiting = list(range(len(vectors)))
    fetched = min(ceil(k * len(passages) / passages.header.documents), max(most, 1))
    while waiting:
        scores, rows = dense.search(vectors[waiting], fetched, params, allowed=mask, order=passages.order)
        for query, its_scores, its_rows in zip(waiting, scores, rows, strict=True):
            hits = passages.fold(its_scores, its_rows)
            if len(hits[1]) >= k or fetched >= most or (its_rows < 0).any():
                finished[query] = (hits[0][:k], hits[1][:k], hits[2][:k])
        waiting = [query for query in waiting if query not in finished]
        fetched = min(2 * fetched, most)
    return [finished[query] for query in range(len(vectors))]


def dense_scorer(index: Index, vector: Vector) -> Scorer | None:
    """The scores of documents' best passages for a query, in [-1, 1]; None if the index cannot return full vectors by row."""
    dense = index[VECTORS]
    if not dense.has_vectors:
        return None
    if not index.holds(PASSAGES):
        return lambda documents: dense.score(vector, documents)
    passages = index[PASSAGES]

    def score(documents: NDArray[np.int64]) -> Vector:
        if not len(documents):
            return dense.score(vector, documents)
        rows, starts = _rows_of(passages, documents)
        best: Vector = np.maximum.reduceat(dense.score(vector, rows), starts)
        return best

    return score


def best_passages(
    dense: DenseView, passages: PassageMap, vector: Vector | None, documents: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The row of each document's best passage for a query, int64 [m]; its first passage if no vectors are available."""
    first: NDArray[np.int64] = passages.first[documents].astype(np.int64)
    if vector is None or not dense.has_vectors or not len(documents):
        return first
    rows, starts = _rows_of(passages, documents)
    scores = dense.score(vector, rows)
    ends = [*starts[1:].tolist(), len(rows)]
    pairs = zip(starts.tolist(), ends, strict=True)
    best: NDArray[np.int64] = rows[[start + int(scores[start:end].argmax()) for start, end in pairs]]
    return best


def rows_read(
    index: Index,
    documents: NDArray[np.int64],  # int64 [m]
    known: Mapping[int, int],  # document row -> row of its best passage, as found by a search
    vector: Vector | None,
) -> NDArray[np.int64]:
    """The row of each document's vector, or of the vector of its best passage, int64 [m]."""
    if not index.holds(PASSAGES):
        return documents.astype(np.int64)
    rows = np.array([known.get(row, -1) for row in documents.tolist()], np.int64)
    missing = rows < 0
    if missing.any():
        rows[missing] = best_passages(index[VECTORS], index[PASSAGES], vector, documents[missing])
    return rows


def _rows_of(
    passages: PassageMap, documents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The passages of documents, int64 [p], and where each document's passages begin among them, int64 [m]."""
    first = passages.first[documents].astype(np.int64)
    counts = passages.first[documents + 1].astype(np.int64) - first
    starts = np.cumsum(counts) - counts
    return np.repeat(first - starts, counts) + np.arange(counts.sum()), starts


Retriever = Literal["dense", "lexical", "learned-sparse", "hybrid"]
RetrieverOrAuto = Literal["auto", "dense", "lexical", "learned-sparse", "hybrid"]
RETRIEVERS: tuple[Retriever, ...] = get_args(Retriever)
Words = Literal["lexical", "learned"]
DEFAULT_CANDIDATES = 100
"""Default number of candidates; a hybrid search gathers as many with each retriever."""
DEFAULT_PARAMS = SearchParams()


@dataclass(frozen=True, slots=True, eq=False)
class RankedDocuments:
    """Documents, best first; ties by id."""

    scores: NDArray[np.float32]  # float32 [k], descending; they give the order
    rows: NDArray[np.int64]  # int64 [k], rows of documents
    # `dense`, `lexical` or `learned` -> that retriever's score, float32 [k], NaN if unknown. `fused`: a hybrid search's evidence
    parts: Mapping[str, NDArray[np.float32]]
    passages: Mapping[int, int]  # document row -> row of its best passage, if dense retrieval found it

    def take(self, places: Any) -> "RankedDocuments":
        """Some of the documents, by a mask or by places, in that order."""
        parts = {name: values[places] for name, values in self.parts.items()}
        return RankedDocuments(self.scores[places], self.rows[places], parts, self.passages)


@dataclass(frozen=True, slots=True, eq=False)
class HybridCandidates:
    """Results of a hybrid search's two retrievers for one query; `fuse_rankings` describes each."""

    dense: Ranking
    lexical: Ranking
    score_dense: Scorer | None
    score_lexical: Scorer
    lexical_scale: float
    head: Ranking | None = None  # the first dense hits regardless of filters; None: those of `dense`
    words: Words = "lexical"  # kind of the part `lexical`: BM25, or BM25 with learned impacts (`learned`)
    score_covered: Scorer | None = None  # fraction of the query that documents hold (`coverage_scorer`)
    lexical_share: float = 1.0  # factor of the lexical weight, as `lexical_share`
    waits: bool = False  # whether the scorers wait for a store


def rank_dense(
    index: Index,  # of the query encoder that made the vector
    vector: Vector,  # float32 [D], L2-normalized
    k: int,  # documents, >= 1
    params: SearchParams = DEFAULT_PARAMS,  # how thoroughly to search
    allowed: RowMask | None = None,  # documents that may be found; None: all
) -> RankedDocuments:
    """The k documents nearest to a query; fewer if an approximate search finds fewer."""
    dense = index[VECTORS]
    if index.holds(PASSAGES):
        cut = index[PASSAGES]
        scores, rows, passages = search_documents(dense, cut, vector[None], k, params, allowed)[0]
        score = dense_scorer(index, vector)
        if score is not None and not _is_exact(index, params):
            # An approximate search may have found another passage than the best one, a filtered search yet another.
            scores, rows = best(score(rows), rows, k, index.order)
            passages = best_passages(dense, cut, vector, rows)
        best_of = dict(zip(rows.tolist(), passages.tolist(), strict=True))
        return RankedDocuments(scores, rows, {"dense": scores}, best_of)
    every_score, every_row = dense.search(vector[None], k, params, allowed=allowed, order=index.order)
    count = int(np.count_nonzero(every_row[0] >= 0))  # missing hits are at the end
    scores, rows = every_score[0, :count], every_row[0, :count]
    return RankedDocuments(scores, rows, {"dense": scores}, {})


def rank_lexical(
    index: Index,  # with a lexical component, and learned impacts if `by` needs them
    text: str,  # of the query
    k: int,
    allowed: RowMask | None = None,
    by: Words = "lexical",  # with learned impacts, a document also matches words that it lacks
    others: Others = NO_OTHERS,  # what else counts as a word of the text
) -> RankedDocuments:
    """The k documents that match a query's words best; none without a match."""
    words = words_searched(index, text, others)
    scores, rows = words_of(index, by).search(words, k, allowed, index.order)
    return RankedDocuments(scores, rows, {by: scores}, {})


def rank_hybrid(
    index: Index,  # with a lexical component
    query: EncodedQuery,
    k: int,
    params: SearchParams = DEFAULT_PARAMS,
    fusion: Fusion | None = None,  # None: the index's own. With `convex`, a filter changes no score
    allowed: RowMask | None = None,
    *,
    calibrates: bool = False,  # scores are probabilities, if the index is calibrated; not before re-ranking
) -> RankedDocuments:
    """Fuses the k documents of each retriever and returns the k best; lexical retrieval uses learned impacts if there are any."""
    fusion = fusion or index.fusion
    dense, gathered = gather_hybrid(index, query, k, params, allowed, reads_head(fusion))
    return fuse_hybrid(index, gathered, k, fusion, dense.passages, calibrates=calibrates)


def fuse_hybrid(
    index: Index,
    gathered: HybridCandidates,  # with the head if the fusion needs it (`reads_head`)
    k: int,  # documents, >= 1
    fusion: Fusion,  # how to combine the two rankings
    passages: Mapping[int, int],  # document row -> row of its best passage, as found by dense retrieval
    *,
    calibrates: bool = False,
    further: NDArray[np.int64] = NO_ROWS,  # int64 [x], other rows to rank
) -> RankedDocuments:
    """The k best documents of a hybrid search's two retrievers."""
    fused = fuse_rankings(
        fusion,
        gathered.dense,
        gathered.lexical,
        index.order,
        gathered.score_dense,
        gathered.score_lexical,
        gathered.lexical_scale,
        gathered.head,
        gathered.score_covered,
        gathered.lexical_share,
        further,
        waits=gathered.waits,
    )
    scores = fused.scores[:k]
    parts = {"dense": fused.parts["dense"][:k], gathered.words: fused.parts["lexical"][:k]}
    if calibrates and fused.head is not None and gathered.words == "lexical":
        if (calibration := index.calibration.of(fusion)) is not None:
            parts["fused"] = scores
            scores = probabilities(calibration, scores, fused.head, fused.openness)
    return RankedDocuments(scores, fused.rows[:k], parts, passages)


def gather_hybrid(
    index: Index,
    query: EncodedQuery,
    k: int,
    params: SearchParams = DEFAULT_PARAMS,
    allowed: RowMask | None = None,
    needs_head: bool = True,  # of all documents; it takes a second search if a filter applies
) -> tuple[RankedDocuments, HybridCandidates]:
    """Both rankings of one query, with what their fusion needs; arguments as for `rank_hybrid`."""
    vector = query.vector
    by: Words = "learned" if index.holds(LEARNED_SPARSE) else "lexical"
    own, impacts = index.preprocessor.pieces.words(query.text), words_of(index, by)
    words = words_searched(index, query.text, query.others) if query.others else own
    searches: list[Callable[[], Any]] = [
        lambda: rank_dense(index, vector, k, params, allowed),
        lambda: impacts.search(words, k, allowed, index.order),
    ]
    if allowed is not None and needs_head:
        # An approximate search for fewer hits may find others: the head is that of the search without the filter.
        most = min(k, HEAD) if _is_exact(index, params) else k
        searches.append(lambda: rank_dense(index, vector, most, params))
    waits = impacts.is_remote or index[VECTORS].is_remote
    dense, lexical, *nearest = run_all(searches, waits=waits)
    head = (nearest[0].scores[:HEAD], nearest[0].rows[:HEAD]) if nearest else None
    return dense, HybridCandidates(
        dense=(dense.scores, dense.rows),
        lexical=lexical,
        score_dense=dense_scorer(index, vector),
        score_lexical=lambda rows: impacts.score(words, rows),
        lexical_scale=impacts.largest,
        head=head,
        words=by,
        score_covered=coverage_scorer(impacts, own, index.preprocessor.weigher.idf, query.others),
        lexical_share=lexical_share(own, query.text),
        waits=waits,
    )


def words_of(index: Index, by: Words) -> ImpactsView:
    """The inverted index for lexical retrieval; requests that need a missing one are refused earlier."""
    return index[LEARNED_SPARSE] if by == "learned" else index[POSTINGS]


def reads_head(fusion: Fusion) -> bool:
    """Whether a fusion needs the certainty of the dense ranking of all documents."""
    return fusion.method == "convex" and fusion.weights.lexical > 0


def _is_exact(index: Index, params: SearchParams) -> bool:
    return index[VECTORS].kind == "flat" or params.exact
