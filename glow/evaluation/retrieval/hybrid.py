"""Hybrid retrieval as the service does it: vectors and words of one index, fused with the default fusion."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from glow.evaluation.retrieval.dense import DenseOptions, DenseRetriever, Progress
from glow.evaluation.runs import Run
from glow.evaluation.task import Corpus
from glow.records import Hit, Query
from glow.runtime import Model
from glow.search import (
    DEFAULT_CANDIDATES,
    DEFAULT_FUSION,
    ImpactIndex,
    build_lexical,
    dense_scorer,
    fuse_rankings,
)
from glow.text import lexical_words

__all__ = ["HybridRetriever"]


class HybridRetriever:
    """A corpus as vectors and as an inverted index; arguments as `DenseRetriever`.

    Attributes:
        ids: document ids, in the order of the rows.
    """

    def __init__(
        self, model: Model, corpus: Corpus, options: DenseOptions, progress: Progress | None = None
    ) -> None:
        self._dense = DenseRetriever(model, corpus, options, progress)
        self.ids = self._dense.ids
        self._preprocessor = self._dense.preprocessor
        # Its files are mapped, so the folder stays as long as the retriever does.
        self._folder = tempfile.TemporaryDirectory(prefix="glow-impacts-")
        schema, pieces = self._preprocessor.schema, self._preprocessor.pieces
        words = (lexical_words(document, schema, pieces) for document in self._dense.documents())
        build_lexical(Path(self._folder.name), words, self._dense.corpus_terms, self._preprocessor.terms)
        self._impacts = ImpactIndex.open(Path(self._folder.name))
        self._order = self._dense.order

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; a query without a word finds nothing, as in the service."""
        return {query.id: self._search(query.text, k) for query in queries}

    def _search(self, text: str, k: int) -> list[Hit]:
        tokens = self._preprocessor.query(text)
        if not tokens.words:
            return []
        candidates = max(k, DEFAULT_CANDIDATES)
        vector = self._dense.encoder.encode([tokens])[0]
        scores, rows = self._dense.index.search(vector[None], candidates, order=self._order)
        words = self._preprocessor.pieces.words(text)
        fused = fuse_rankings(
            DEFAULT_FUSION,
            (scores[0], rows[0]),
            self._impacts.search(words, candidates, None, self._order),
            self._order,
            dense_scorer(self._dense.index, None, vector),
            lambda missing: self._impacts.score(words, missing),
            self._impacts.largest,
        )
        best = zip(fused.rows[:k].tolist(), fused.scores[:k].tolist(), strict=True)
        return [Hit(self.ids[row], score) for row, score in best]
