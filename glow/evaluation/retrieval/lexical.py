"""The lexical baseline: BM25 by the `bm25s` library over all joined text fields.

Terms are lower-cased words of two or more letters, without English stop words and stemming; k1 1.2, b 0.75. URLs are
left out, because splitting them is the model's task.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import DependencyError
from glow.evaluation.runs import Run
from glow.records import Document, Hit, Query

__all__ = ["LexicalRetriever"]

K1 = 1.2
B = 0.75


class LexicalRetriever:
    """BM25 over a corpus, in memory.

    Args:
        documents: the corpus.
        fields: the fields to join; their order does not matter.

    Attributes:
        ids: document ids in the order of the corpus.

    Raises:
        DependencyError: if `bm25s` is not installed.
    """

    def __init__(self, documents: Iterable[Document], fields: Sequence[str]) -> None:
        self._library = _bm25s()
        self.ids: list[str] = []
        texts: list[str] = []
        for document in documents:
            self.ids.append(document.id)
            texts.append(" ".join(text for name in fields for text in document.fields.get(name, ())))
        tokens = self._tokens(texts)
        # The library cannot handle a corpus of only stop words, which has no terms.
        self._index = self._library.BM25(k1=K1, b=B) if any(tokens) else None
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
