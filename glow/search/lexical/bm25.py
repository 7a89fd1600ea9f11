"""BM25 as impacts: the lexical index of a corpus, from its term table and one pass over its documents.

N, df   documents in all and those with the word, of the term table
l       words of a document that the index holds; avgl their average over the indexed documents
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.search.lexical.build import CHUNK_POSTINGS, ImpactWriter
from glow.search.lexical.format import ImpactHeader
from glow.text import Analyzer, TermTable, bm25_impact, idf_lucene, is_lexical

__all__ = ["Bm25", "build_lexical"]


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
    """
    bm25 = bm25 or Bm25()
    analyzer = analyzer or Analyzer()
    found = {word: analyzer.term(word) for word, _ in corpus.items() if is_lexical(word)}
    words = sorted(set(found.values()), key=str.encode)
    rows = {term: row for row, term in enumerate(words)}
    ids = {word: rows[term] for word, term in found.items()}
    del found, rows
    lengths = array("I")
    with ImpactWriter(folder, words, chunk_postings) as writer:
        for document in documents:
            counts = Counter(row for word in document if (row := ids.get(word)) is not None)
            writer.add(counts.keys(), counts.values())
            lengths.append(counts.total())
        idf = _idf(words, terms)
        del ids
        length = np.array(lengths, np.float64)
        own = max(float(length.mean()), 1.0) if len(length) else 1.0
        average = average_length or own

        def to_impacts(
            word: NDArray[np.uint32], row: NDArray[np.uint32], tf: NDArray[np.float32]
        ) -> NDArray[np.float64]:
            return bm25_impact(idf[word], tf.astype(np.float64), length[row], average, bm25.k1, bm25.b)

        parameters = {"k1": bm25.k1, "b": bm25.b, "average_length": average}
        return writer.finish("bm25", to_impacts, parameters, analyzer.name)


def _idf(words: list[str], terms: TermTable) -> NDArray[np.float64]:
    """float64 [v], > 0."""
    documents = float(max(terms.documents, 1))
    dfs = np.fromiter((max(terms.df(word), 1) for word in words), np.float64, len(words))
    return idf_lucene(np.minimum(dfs, documents), documents)
