"""BM25 as impacts: builds the lexical index of a corpus from its term statistics and one pass over its documents.

N, df   number of all documents and of those with the word, from the term statistics
l       number of a document's indexed words; avgl their average over the indexed documents
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.build import CHUNK_POSTINGS, ImpactWriter
from glow.index.postings.format import ImpactHeader
from glow.text import Analyzer, TermTable, bm25_impact, idf_lucene, is_lexical

__all__ = ["Bm25", "build_lexical"]


OnWords = Callable[[Iterable[tuple[str, int]]], object]


@dataclass(frozen=True, slots=True)
class Bm25:
    """Parameters of BM25; docs/decisions/0006 has the measurements behind the defaults.

    Attributes:
        k1: how slowly repetitions of a word lose their effect, > 0.
        b: effect of a document's length, in [0, 1].
    """

    k1: float = 1.2
    b: float = 0.75


def build_lexical(
    folder: Path,
    documents: Iterable[Iterable[str]],
    corpus: TermTable,
    terms: TermTable,
    bm25: Bm25 | None = None,
    chunk_postings: int = CHUNK_POSTINGS,
    average_length: float | None = None,
    analyzer: Analyzer | None = None,
    on_words: OnWords | None = None,
) -> ImpactHeader:
    """Writes BM25 impacts of documents into a directory.

    Args:
        folder: created if missing.
        documents: the words of each, in the order of rows.
        corpus: word statistics of these documents: their words are the vocabulary, which limits the memory.
        terms: the index's statistics, for idf; of terms, if the analyzer makes them. A missing word or term counts as one of a
            single document.
        bm25: the parameters.
        chunk_postings: number of postings to sort at once.
        average_length: in words, > 0, of the collection that is extended; None: that of these documents.
        analyzer: turns words into terms; None: `plain`.
        on_words: called with each word of the documents and its document frequency, in the order of the words' UTF-8 bytes.
    """
    bm25 = bm25 or Bm25()
    vocabulary = _Vocabulary(corpus, analyzer or Analyzer())
    lengths = array("I")
    with ImpactWriter(folder, vocabulary.terms, chunk_postings) as writer:
        for document in documents:
            counts = vocabulary.count(document)
            writer.add(counts.keys(), counts.values())
            lengths.append(counts.total())
        if on_words is not None:
            on_words(vocabulary.held())
        idf = _idf(vocabulary.terms, terms)
        length = np.array(lengths, np.float64)
        own = max(float(length.mean()), 1.0) if len(length) else 1.0
        average = average_length or own

        def to_impacts(
            word: NDArray[np.uint32], row: NDArray[np.uint32], tf: NDArray[np.float32]
        ) -> NDArray[np.float64]:
            return bm25_impact(idf[word], tf.astype(np.float64), length[row], average, bm25.k1, bm25.b)

        parameters = {"k1": bm25.k1, "b": bm25.b, "average_length": average}
        return writer.finish("bm25", to_impacts, parameters, vocabulary.analyzer.name)


class _Vocabulary:
    """The indexed words, with the term and document frequency of each.

    Args:
        corpus: source of the words, in the order of their UTF-8 bytes; words that are not indexed are left out.
        analyzer: turns words into terms.

    Attributes:
        terms: sorted by UTF-8 bytes; without stemming the words themselves.
    """

    def __init__(self, corpus: TermTable, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._words = [word for word, _ in corpus.items() if is_lexical(word)]
        self._ids = {word: place for place, word in enumerate(self._words)}
        self._dfs = np.zeros(len(self._words), np.uint32)
        self.terms, self._rows = self._words, np.empty(0, np.uint32)
        if analyzer.name != "plain":
            self.terms = sorted({analyzer.term(word) for word in self._words}, key=str.encode)
            rows = {term: row for row, term in enumerate(self.terms)}
            self._rows = np.fromiter((rows[analyzer.term(word)] for word in self._words), np.uint32)

    def count(self, document: Iterable[str]) -> Counter[int]:
        """How often a document has each term, by the term's number; other words are ignored."""
        counts = Counter(place for word in document if (place := self._ids.get(word)) is not None)
        places = list(counts)
        self._dfs[places] += 1
        if self.terms is self._words:
            return counts
        merged: Counter[int] = Counter()
        for row, times in zip(self._rows[places].tolist(), counts.values(), strict=True):
            merged[row] += times
        return merged

    def held(self) -> Iterator[tuple[str, int]]:
        """Each word of the documents, with its document frequency."""
        return ((word, df) for word, df in zip(self._words, self._dfs.tolist(), strict=True) if df)


def _idf(words: list[str], terms: TermTable) -> NDArray[np.float64]:
    """float64 [v], > 0."""
    documents = float(max(terms.documents, 1))
    dfs = np.fromiter((max(terms.df(word), 1) for word in words), np.float64, len(words))
    return idf_lucene(np.minimum(dfs, documents), documents)
