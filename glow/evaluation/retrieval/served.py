"""Searches as a service does, with the same ranking functions and fusion, over a version or a corpus in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path

from glow.artifact import IndexRoot
from glow.errors import MismatchError
from glow.evaluation.retrieval.corpus_index import CorpusIndex, DenseOptions, Progress
from glow.evaluation.runs import Run
from glow.evaluation.task import Corpus
from glow.index import Index, Searchable
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Hit, Query
from glow.runtime import Device, EncodedText, Encoder, Model
from glow.search import (
    DEFAULT_CANDIDATES,
    AnalyzedQuery,
    EncodedQuery,
    RankedDocuments,
    Reranking,
    Retriever,
    Typos,
    Words,
    analyze_query,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    rerank,
    score_unit,
)

__all__ = ["DenseRetriever", "HybridRetriever", "ServedRetriever", "open_version"]

QUERIES_AT_ONCE = 256


class ServedRetriever:
    """Searches like `POST /search`, one query after another.

    Args:
        index: the index to search.
        encoder: the query tower.
        ids: ids of the searchable documents.
        names: maps rows to document ids.
        kind: the retriever.
        typos: whether to correct typos in queries, as in a request.
        reranking: how to re-rank the first hits; None: no re-ranking.

    Attributes:
        ids: as given.
    """

    def __init__(
        self,
        index: Searchable,
        encoder: Encoder,
        ids: list[str],
        names: Callable[[Sequence[int]], Sequence[str]],
        kind: Retriever,
        typos: Typos = "auto",
        reranking: Reranking | None = None,
    ) -> None:
        self.ids = ids
        self.typos: Typos = typos
        self._reranking = reranking
        self._index, self._encoder, self._names, self._kind = index, encoder, names, kind

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; a query without a word finds nothing, as in the service."""
        run: dict[str, list[Hit]] = {query.id: [] for query in queries}
        readings = [(query, analyze_query(self._index, query.text, self.typos)) for query in queries]
        asked = [(query, reading) for query, reading in readings if reading.tokens.words]
        for start in range(0, len(asked), QUERIES_AT_ONCE):
            block = asked[start : start + QUERIES_AT_ONCE]
            if self._kind in ("lexical", "learned-sparse"):
                read: list[EncodedText | None] = [None] * len(block)
            else:
                read = list(self._encoder.read([reading.tokens for _, reading in block]))
            for (query, reading), encoded in zip(block, read, strict=True):
                ranked = self._rank(reading, encoded, k)
                rows, scores = ranked.rows[:k].tolist(), ranked.scores[:k].tolist()
                names = self._names(rows) if rows else []
                run[query.id] = [Hit(name, score) for name, score in zip(names, scores, strict=True)]
        return run

    def _rank(self, reading: AnalyzedQuery, encoded: EncodedText | None, k: int) -> RankedDocuments:
        if self._reranking is None:
            return self._first(reading, encoded, k)
        assert isinstance(self._index, Index)  # noqa: S101 - `open_version` gives no other
        ranked = self._first(reading, encoded, max(k, DEFAULT_CANDIDATES))  # as a service gathers them
        unit = score_unit(self._index, self._kind, None)
        vector = None if encoded is None else encoded.vector
        return rerank(self._index, reading.text, ranked, self._reranking, unit, vector)[0]

    def _first(self, reading: AnalyzedQuery, encoded: EncodedText | None, k: int) -> RankedDocuments:
        if self._kind in ("lexical", "learned-sparse"):
            by: Words = "lexical" if self._kind == "lexical" else "learned"
            return rank_lexical(self._index, reading.text, k, by=by)
        assert encoded is not None  # noqa: S101 - every other kind has one
        if self._kind == "dense":
            return rank_dense(self._index, encoded.vector, k)
        query = EncodedQuery.of(reading, encoded)
        return rank_hybrid(self._index, query, max(k, DEFAULT_CANDIDATES))


class DenseRetriever(ServedRetriever):
    """Dense retrieval over a corpus in memory; arguments as for `CorpusIndex`."""

    def __init__(
        self, model: Model, corpus: Corpus, options: DenseOptions, progress: Progress | None = None
    ) -> None:
        index = CorpusIndex(model, corpus, options, has_words=False, progress=progress)
        super().__init__(index, index.encoder, index.ids, index.names, "dense")


class HybridRetriever(ServedRetriever):
    """Hybrid retrieval over a corpus in memory with the default fusion; arguments as for `CorpusIndex`."""

    def __init__(
        self, model: Model, corpus: Corpus, options: DenseOptions, progress: Progress | None = None
    ) -> None:
        index = CorpusIndex(model, corpus, options, has_words=True, progress=progress)
        super().__init__(index, index.encoder, index.ids, index.names, "hybrid")


def open_version(
    root: Path,
    kind: Retriever,
    device: Device = "cpu",
    threads: int = 1,
    reranking: Reranking | None = None,
) -> tuple[Index, ServedRetriever]:
    """Opens the live version of an index root for searches like those of a service.

    Raises:
        ArtifactError: if there is no live version, or it is damaged.
        MismatchError: if it lacks the requested lexical index or re-ranker.
    """
    versions = IndexRoot(root)
    index = Index.open(versions.folder(versions.current()), device, threads)
    if kind == "learned-sparse" and not index.holds(LEARNED_SPARSE):
        raise MismatchError(
            f"index {index.version} has no learned impacts; build it again with --learned-sparse"
        )
    if kind != "dense" and not index.holds(POSTINGS):
        raise MismatchError(
            f"version {index.version} holds no words, {kind!r} needs them; build it with --lexical"
        )
    if reranking is not None and (
        index.reranker is None or reranking.method not in index.reranker.shape.methods
    ):
        raise MismatchError(
            f"version {index.version} cannot re-rank by {reranking.method!r}; build it with a re-ranker that can (glow build "
            "--rerank DIR)"
        )

    def names(rows: Sequence[int]) -> list[str]:
        return [document.id for document in index[STORED_FIELDS].rows(list(rows))]

    ids = [row[0] for row in index[STORED_FIELDS].by_id()]
    return index, ServedRetriever(index, index.encoder, ids, names, kind, reranking=reranking)
