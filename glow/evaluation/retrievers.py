"""The retrievers that can be evaluated: as a service searches, over a version or a corpus in memory, and plain BM25."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.errors import ConfigError, DependencyError, InputError, MismatchError
from glow.evaluation.corpus_index import DenseOptions, Progress, corpus_index
from glow.evaluation.runs import Run
from glow.evaluation.task import Corpus
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document, Hit, Query
from glow.runtime import Device, Model
from glow.schema import FieldSchema
from glow.search import (
    DEFAULT_CANDIDATES,
    AnalyzedQuery,
    EncodedQuery,
    RankedDocuments,
    Reranking,
    Typos,
    Words,
    analyze_query,
    fuse,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    rerank,
    score_unit,
)

QUERIES_AT_ONCE = 256
RetrieverKind = Literal["dense", "lexical", "learned-sparse", "hybrid"]


class Retriever(Protocol):
    """Searches documents for queries."""

    ids: list[str]  # of the searchable documents

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first."""
        ...


def open_retriever(
    kind: RetrieverKind,
    data: Path,  # the data directory
    model: Model | None,  # not needed for `lexical`
    options: DenseOptions,  # not needed for `lexical`
    progress: Progress | None = None,
) -> Retriever:
    """Reads a corpus and makes it searchable."""
    schemas = [FieldSchema.preset("glow-default"), *([model.preprocessor.schema] if model else [])]
    specs = {spec.name: spec for schema in schemas for spec in schema.fields}
    corpus = Corpus(data, tuple(specs))
    text_fields = [spec.name for spec in specs.values() if spec.kind == "text"]
    retriever: Retriever
    if kind == "lexical":
        retriever = LexicalRetriever(corpus, text_fields)
    elif kind == "learned-sparse":
        raise ConfigError(
            "retriever 'learned-sparse' is measured over an index that was built with --learned-sparse: give --index-root"
        )
    elif model is None:
        raise ConfigError(f"retriever {kind!r} needs a model; give --model")
    else:
        opened = DenseRetriever if kind == "dense" else HybridRetriever
        retriever = opened(model, corpus, options, progress)
    if not retriever.ids:
        raise InputError(f"{data.name}/corpus.jsonl holds no document with text")
    return retriever


def open_version(
    root: Path,
    kind: RetrieverKind,
    device: Device = "cpu",
    threads: int = 1,
    reranking: Reranking | None = None,
) -> tuple[Index, "ServedRetriever"]:
    """Opens the live version of an index root for searches like those of a service."""
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
    if reranking is not None and index.reranker is None:
        raise MismatchError(
            f"version {index.version} has no re-ranker; build it with one (glow build --rerank DIR)"
        )

    def names(rows: Sequence[int]) -> list[str]:
        return [document.id for document in index[STORED_FIELDS].rows(list(rows))]

    ids = [row[0] for row in index[STORED_FIELDS].by_id()]
    return index, ServedRetriever(index, ids, names, kind, reranking=reranking)


class ServedRetriever:
    """Searches like `POST /search`, one query after another."""

    def __init__(
        self,
        index: Index,
        ids: list[str],  # of the searchable documents
        names: Callable[[Sequence[int]], Sequence[str]],  # maps rows to document ids
        kind: RetrieverKind,
        typos: Typos = "auto",  # as in a request
        reranking: Reranking | None = None,
    ) -> None:
        self.ids = ids
        self.typos: Typos = typos
        self._reranking = reranking
        self._index, self._names, self._kind = index, names, kind

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; a query without a word finds nothing, as in the service."""
        run: dict[str, list[Hit]] = {query.id: [] for query in queries}
        readings = [(query, analyze_query(self._index, query.text, self.typos)) for query in queries]
        worded = [(query, reading) for query, reading in readings if reading.tokens.words]
        for start in range(0, len(worded), QUERIES_AT_ONCE):
            block = worded[start : start + QUERIES_AT_ONCE]
            if self._kind in ("lexical", "learned-sparse"):
                vectors: Sequence[NDArray[np.float32] | None] = [None] * len(block)
            else:
                vectors = list(self._index.encoder.encode([reading.tokens for _, reading in block]))
            for (query, reading), vector in zip(block, vectors, strict=True):
                ranked = self._rank(reading, vector, k)
                rows, scores = ranked.rows[:k].tolist(), ranked.scores[:k].tolist()
                names = self._names(rows) if rows else []
                run[query.id] = [Hit(name, score) for name, score in zip(names, scores, strict=True)]
        return run

    def _rank(self, reading: AnalyzedQuery, vector: NDArray[np.float32] | None, k: int) -> RankedDocuments:
        if self._reranking is None:
            return self._first(reading, vector, k)
        ranked = self._first(reading, vector, max(k, DEFAULT_CANDIDATES))  # as a service gathers them
        unit = score_unit(self._index, self._kind, None)
        return rerank(self._index, reading.text, ranked, self._reranking, unit, vector)[0]

    def _first(self, reading: AnalyzedQuery, vector: NDArray[np.float32] | None, k: int) -> RankedDocuments:
        if self._kind in ("lexical", "learned-sparse"):
            by: Words = "lexical" if self._kind == "lexical" else "learned"
            return rank_lexical(self._index, reading.text, k, by=by)
        assert vector is not None  # noqa: S101 - every other kind has one
        if self._kind == "dense":
            return rank_dense(self._index, vector, k)
        query = EncodedQuery(reading.text, vector)
        return rank_hybrid(self._index, query, max(k, DEFAULT_CANDIDATES))


class DenseRetriever(ServedRetriever):
    """Dense retrieval over a corpus in memory; arguments as for `corpus_index`."""

    def __init__(
        self, model: Model, corpus: Corpus, options: DenseOptions, progress: Progress | None = None
    ) -> None:
        index, ids = corpus_index(model, corpus, options, has_words=False, progress=progress)
        super().__init__(index, ids, lambda rows: [ids[row] for row in rows], "dense")


class HybridRetriever(ServedRetriever):
    """Hybrid retrieval over a corpus in memory with the default fusion; arguments as for `corpus_index`."""

    def __init__(
        self, model: Model, corpus: Corpus, options: DenseOptions, progress: Progress | None = None
    ) -> None:
        index, ids = corpus_index(model, corpus, options, has_words=True, progress=progress)
        super().__init__(index, ids, lambda rows: [ids[row] for row in rows], "hybrid")


class FusedRetriever:
    """Reciprocal rank fusion of the k best hits of several retrievers."""

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self._parts = parts
        self.ids = list(dict.fromkeys(identifier for part in parts for identifier in part.ids))

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; scores are sums of reciprocal ranks."""
        return fuse([part.search(queries, k) for part in self._parts], k)


class LexicalRetriever:
    """The lexical baseline: BM25 by the `bm25s` library over all joined text fields, in memory.

    Terms are lower-cased words of two or more letters, without English stop words and stemming; k1 1.2, b 0.75. URLs
    are left out, because splitting them is the model's task.
    """

    K1, B = 1.2, 0.75

    def __init__(self, documents: Iterable[Document], fields: Sequence[str]) -> None:
        self._library = _bm25s()
        self.ids: list[str] = []  # in the order of the corpus
        texts: list[str] = []
        for document in documents:
            self.ids.append(document.id)
            texts.append(" ".join(text for name in fields for text in document.fields.get(name, ())))
        tokens = self._tokens(texts)
        # The library cannot handle a corpus of only stop words, which has no terms.
        self._index = self._library.BM25(k1=self.K1, b=self.B) if any(tokens) else None
        if self._index is not None:
            self._index.index(tokens, show_progress=False)

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """The k best documents of each query that share a word with it; the earlier document wins a tie."""
        if self._index is None or not queries:
            return {query.id: [] for query in queries}
        tokens = self._tokens([query.text for query in queries])
        return {query.id: self._hits(words, k) for query, words in zip(queries, tokens, strict=True)}

    def _hits(self, words: list[str], k: int) -> list[Hit]:
        if not words or self._index is None:
            return []
        scores = self._index.get_scores(words)
        rows = _best(scores, k)
        return [
            Hit(self.ids[row], score) for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)
        ]

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        tokens: list[list[str]] = self._library.tokenize(
            texts, stopwords="en", return_ids=False, show_progress=False
        )
        return tokens


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k largest scores above 0, largest first, ties by position.

    The library's own choice is arbitrary among documents that tie with the k-th.
    """
    rows = np.flatnonzero(scores > 0.0)
    if 0 < k < len(rows):
        best = scores[rows]
        rows = rows[best >= np.partition(best, -k)[-k]]
    return rows[np.argsort(-scores[rows], kind="stable")[:k]]


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise DependencyError(
            f"the lexical baseline needs bm25s ({error}): pip install glow-retrieval[eval]"
        ) from error
    return bm25s
