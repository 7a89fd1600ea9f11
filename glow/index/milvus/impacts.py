"""Impacts in a collection: an entity's sparse vector has a number for each term of a document.

A search asks Milvus for the best inner products, and adds up the returned impacts once more in the order of the vocabulary.
So scores and ties are those of `ImpactIndex`, bit for bit; only rounded impacts of compressed postings may differ in the last
digit if a word is repeated.

m   rows        v   words       t   terms of a query
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.learned_sparse import Expansion
from glow.index.milvus.collection import MAX_HITS, SPARE_HITS, Ask, Collection, RowSearch
from glow.index.milvus.encoded import decode
from glow.index.milvus.expressions import FilterFields
from glow.index.postings import (
    Block,
    ImpactHeader,
    Vocabulary,
    count_terms,
    read_counts,
    read_impacts_header,
)
from glow.index.ranking import Ranking, best
from glow.index.row_mask import RowMask
from glow.text import Analyzer

__all__ = ["CAUSES_FIELD", "WORDS_FIELD", "MilvusImpacts", "MilvusLearned", "Terms"]

WORDS_FIELD, CAUSES_FIELD = "words", "causes"
SLACK = 1e-5
"""Relative limit of the difference between float32 sums in different orders."""
NO_CAUSE = 255
Term = tuple[int, np.float32]
"""Dimension of the sparse vector, and factor of its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The terms of BM25, or of learned impacts, whose files stay in the version's directory.

    Attributes:
        header: kind and counts.
        vocabulary: the words.
        starts: int64 [v + 1]; the difference of two is a word's document frequency.
        maxima: float32 [v], each word's largest impact.
        first: dimension of the first word.
    """

    header: ImpactHeader
    vocabulary: Vocabulary
    starts: NDArray[np.int64]
    maxima: NDArray[np.float32]
    first: int

    @classmethod
    def open(cls, folder: Path, first: int) -> "Terms":
        """Opens the files that stay.

        Raises:
            FormatError: if one is missing or damaged.
        """
        header = read_impacts_header(folder)
        return cls(header, Vocabulary.load(folder), *read_counts(folder, header), first)

    @property
    def analyzer(self) -> Analyzer:
        """Turns words into terms."""
        return Analyzer(self.header.analyzer)

    def rows(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Rows in the vocabulary, ascending, and how often the query has each."""
        counted = count_terms(self.analyzer, words).items()
        return sorted((row, count) for word, count in counted if (row := self.vocabulary.row(word)) >= 0)

    def of(self, words: Sequence[str], weight: float = 1.0) -> list[Term]:
        """The terms of a query."""
        unit = self.header.unit
        return [
            (self.first + row, np.float32(np.float32(unit * count) * weight))
            for row, count in self.rows(words)
        ]


class MilvusImpacts:
    """Arguments and results as for `ImpactIndex`.

    Args:
        collection: of the documents.
        filters: translates filters; None: they are sent as rows.
        bm25: the terms; or those of learned impacts, for merging.
    """

    is_remote = True

    def __init__(self, collection: Collection, filters: FilterFields | None, bm25: Terms) -> None:
        self._collection, self._filters, self._bm25 = collection, filters, bm25
        self.header, self.vocabulary, self.analyzer = bm25.header, bm25.vocabulary, bm25.analyzer
        self.largest = float(bm25.maxima.max(initial=0.0))

    def __len__(self) -> int:
        return self.header.documents

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest scores, all > 0."""
        terms = self._terms(words)
        most = min(k, len(self) if allowed is None else allowed.count)
        if not terms or most == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        said = None
        if self._filters is not None and allowed is not None and allowed.expression is not None:
            said = self._filters.translate(allowed.expression)
        # Of hits that are filtered here, most vectors would be read for nothing.
        reads = allowed is None or said is not None
        search, wanted = RowSearch(self._ask(terms, reads=reads), len(self)), most
        while True:
            about, rows = search.nearest(wanted, allowed, said)
            scores = self._sums(terms, rows)
            # Rounded otherwise, or tied with the last: there may be more of those.
            floor = np.partition(scores, -most)[-most] * (1 - SLACK) if len(scores) >= most else 0.0
            if len(rows) < wanted or about.min(initial=0.0) < floor or wanted >= MAX_HITS - SPARE_HITS:
                return best(scores[scores > 0], rows[scores > 0], k, order)
            wanted = min(4 * wanted, MAX_HITS - SPARE_HITS)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents, bit for bit those of `search`."""
        return self._sums(self._terms(words), rows)

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]."""
        added = [self._sums(self._terms([word]), rows) for word in words]
        return np.stack(added, axis=1) if added else np.empty((len(rows), 0), np.float32)

    def holds(self, word: str) -> bool:
        """Whether any document has a word, or another with the same term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return float(sum(float(self._bm25.maxima[row]) * count for row, count in self._bm25.rows(words)))

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all. Few words are searched: those with the largest impacts."""
        if alive is None:
            return self.largest
        largest = 0.0
        for word in np.argsort(-self._bm25.maxima, kind="stable").tolist():
            if self._bm25.maxima[word] <= largest:
                break
            terms = [(self._bm25.first + word, np.float32(self.header.unit))]
            _, rows = RowSearch(self._ask(terms), len(self)).nearest(1, alive, None)
            largest = max(largest, float(self._sums(terms, rows).max(initial=0.0)))
        return largest

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings in blocks of some rows, and within these in the order of words; codes, if impacts are learned."""
        del most
        first, stop, row = self._bm25.first, self._bm25.first + self.header.words, 0
        is_learned = self.header.kind == "learned"
        for entities in self._collection.scan((WORDS_FIELD, CAUSES_FIELD) if is_learned else (WORDS_FIELD,)):
            held = [_sorted(entity[WORDS_FIELD], first, stop) for entity in entities]
            words = np.concatenate([each[0] for each in held]) - first
            values = np.concatenate([each[1] for each in held])
            rows = np.repeat(
                np.arange(row, row + len(held), dtype=np.uint32), [len(each[0]) for each in held]
            )
            order = np.argsort(words, kind="stable")
            causes = None
            if is_learned:
                values = values.astype(np.uint8)
                every = [np.frombuffer(decode(entity[CAUSES_FIELD]), np.uint8) for entity in entities]
                causes = np.concatenate(every)[order]
            yield Block(words[order], rows[order], values[order], causes)
            row += len(held)

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        for row, count in enumerate(np.diff(self._bm25.starts).tolist()):
            yield self.vocabulary.word(row), count

    def cause(self, word: str, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        place = self.vocabulary.row(word)
        entity = self._collection.read([row], (WORDS_FIELD, CAUSES_FIELD))[0]
        dims, _ = _sorted(entity[WORDS_FIELD], self._bm25.first, self._bm25.first + self.header.words)
        at = np.flatnonzero(dims == self._bm25.first + place)
        return int(decode(entity[CAUSES_FIELD])[at[0]]) if len(at) else None

    def _terms(self, words: Sequence[str]) -> list[Term]:
        """The terms of a query, in the order of addition."""
        return self._bm25.of(words)

    def _ask(self, terms: Sequence[Term], *, reads: bool = True) -> Ask:
        """One search; `reads` says whether the hits' vectors come with it."""
        query, fields = {term: float(factor) for term, factor in terms}, (WORDS_FIELD,) if reads else ()

        def ask(limit: int, said: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
            return self._collection.ask(WORDS_FIELD, query, limit, said, {}, fields)

        return ask

    def _sums(self, terms: Sequence[Term], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Sums of given documents, float32 [m], rounded as `look_up` rounds them."""
        scores = np.zeros(len(rows), np.float32)
        if terms and len(rows):
            held = self._collection.read(rows.tolist(), (WORDS_FIELD,), caches=True)
            vectors = [each[WORDS_FIELD] for each in held]
            for term, factor in terms:
                found = np.array([vector.get(term, 0.0) for vector in vectors], np.float32)
                scores += np.multiply(found, factor, dtype=np.float32)
        return scores


class MilvusLearned(MilvusImpacts):
    """BM25 and learned impacts as one; arguments and results as for `LearnedImpacts`.

    Args:
        collection, filters, bm25: as for `MilvusImpacts`.
        learned: terms of the learned impacts.
        weight: factor of learned impacts, >= 0.
    """

    def __init__(
        self,
        collection: Collection,
        filters: FilterFields | None,
        bm25: Terms,
        learned: Terms,
        weight: float = 1.0,
    ) -> None:
        super().__init__(collection, filters, bm25)
        self._learned, self.weight = learned, weight

    @property
    def learned(self) -> MilvusImpacts:
        """The learned impacts without BM25."""
        return MilvusImpacts(self._collection, self._filters, self._learned)

    def with_weight(self, weight: float) -> "MilvusLearned":
        """The same impacts with another weight."""
        return MilvusLearned(self._collection, self._filters, self._bm25, self._learned, weight)

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return super().bound(words) + self.weight * self.learned.bound(words)

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each query word adds, by source; words that add nothing are left out."""
        at, found, learned = np.array([row], np.int64), {}, self.learned
        for word, count in Counter(words).items():
            own, related = (
                float(self._sums(terms, at)[0]) for terms in (self._bm25.of([word]), self._learned.of([word]))
            )
            bm25, added = count * own, self.weight * count * related
            if bm25 or added:
                cause = learned.cause(word, row) if added else None
                found[word] = Expansion(bm25, added, None if cause == NO_CAUSE else cause)
        return found

    def _terms(self, words: Sequence[str]) -> list[Term]:
        own = self._bm25.of(words)
        return own + self._learned.of(words, self.weight) if self.weight else own


def _sorted(vector: dict[int, float], first: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Dimensions first to stop of a sparse vector, ascending, and their numbers."""
    dims = np.fromiter((int(dim) for dim in vector), np.int64, len(vector))
    values = np.fromiter(vector.values(), np.float32, len(vector))
    kept = np.flatnonzero((dims >= first) & (dims < stop))
    kept = kept[np.argsort(dims[kept])]
    return dims[kept], values[kept]
