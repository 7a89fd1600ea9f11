"""BM25 as impacts: the lexical index of a corpus, from its term table and one pass over its documents.

N, df   documents in all and those with the word, of the term table
l       words of a document that the index holds; avgl their average over the indexed documents
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
        k1: how slowly a word that comes again stops to count, > 0.
        b: how much a document's length counts, in [0, 1].
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
    """Writes BM25 impacts of documents into a folder.

    Args:
        folder: made if need be.
        documents: the words of each, in the order of the rows.
        corpus: the table of these documents: its words are the vocabulary, so it bounds the memory.
        terms: the index's table, which idf comes from, of terms where the analyzer makes them; a word or term that it lacks
            counts as one of a single document.
        bm25: the parameters.
        chunk_postings: postings sorted at once.
        average_length: in words, > 0, of the collection that these documents join; None: their own.
        analyzer: makes terms of words; None: `plain`.
        on_words: told each whole word that a document holds, with how many do, in the order of the words' UTF-8 bytes.
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
    """The words that are indexed, the term of each, and how many documents hold it.

    Args:
        corpus: its words, in the order of their UTF-8 bytes, as far as a lexical index holds them.
        analyzer: makes the terms.

    Attributes:
        terms: sorted by UTF-8 bytes; without stems the words themselves.
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
        """How often a document has each term, by the term's place; the others do not count."""
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
        """Each word that a document holds, with how many do."""
        return ((word, df) for word, df in zip(self._words, self._dfs.tolist(), strict=True) if df)


def _idf(words: list[str], terms: TermTable) -> NDArray[np.float64]:
    """float64 [v], > 0."""
    documents = float(max(terms.documents, 1))
    dfs = np.fromiter((max(terms.df(word), 1) for word in words), np.float64, len(words))
    return idf_lucene(np.minimum(dfs, documents), documents)
