"""The inverted index: word -> the documents that hold it, and what the word adds to the score of each (its impact).

A document's score is the sum of its impacts over the words of the query, each as often as the query has it: BM25
where the impacts are BM25's (`glow.search.bm25`), and any other term weighting where they are learned. The index
brings its own vocabulary, so neither stop words nor punctuation need a rule at query time: what has no postings adds
nothing. Where the analyzer makes terms of words, the index does so itself: whoever searches gives words. The lay-out is the column-wise one of BM25S (Lu 2024, https://arxiv.org/abs/2407.03618).

    n   documents       p   postings        v   words       k   hits
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.search.lexical.format import ImpactHeader, read_arrays, read_impacts_header
from glow.search.lexical.vocabulary import Vocabulary
from glow.search.ranking import Ranking, best
from glow.search.row_mask import RowMask
from glow.text import Analyzer, is_lexical

__all__ = ["ImpactIndex"]

# Below a posting for every so many documents, looking at the postings is less work than looking at all documents.
DOCUMENTS_PER_POSTING = 8
# A look-up of one row in the postings of a word costs about as much as adding so many of them.
POSTINGS_PER_LOOKUP = 32


class _Postings(NamedTuple):
    """One word of a query: where its postings lie, and how often the query has it."""

    start: int
    stop: int
    times: int


class ImpactIndex:
    """An inverted index, memory-mapped; safe to search from many threads.

    Args:
        header: kind and counts.
        vocabulary: the words.
        starts: int64 [v + 1], where the postings of each word start.
        maxima: float32 [v], each word's largest impact.
        rows: uint32 [p], per word the documents that hold it, ascending.
        impacts: float32 [p], finite and > 0.

    Attributes:
        analyzer: makes the vocabulary's terms of words.
    """

    def __init__(
        self,
        header: ImpactHeader,
        vocabulary: Vocabulary,
        starts: NDArray[np.int64],
        maxima: NDArray[np.float32],
        rows: NDArray[np.uint32],
        impacts: NDArray[np.float32],
    ) -> None:
        self.header = header
        self.vocabulary = vocabulary
        self.analyzer = Analyzer(header.analyzer)
        self._starts = starts
        self._maxima = maxima
        self._rows = rows
        self._impacts = impacts
        self._largest = float(maxima.max(initial=0.0))
        self._local = threading.local()

    def __len__(self) -> int:
        return self.header.documents

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k documents with the highest scores.

        Args:
            words: of the query; one that comes again counts again.
            k: hits, >= 1.
            allowed: the documents that may be found; None: all.
            order: uint32 [n], each document's place among equals; None: its row.

        Returns:
            scores float32 [k'] descending, all > 0, and rows int64 [k'], k' <= k: documents that share no word with
            the query are not found.
        """
        parts = self._parts(words)
        postings = sum(part.stop - part.start for part in parts)
        if allowed is not None and allowed.count * POSTINGS_PER_LOOKUP * len(parts) < postings:
            rows = allowed.rows
            scores = self._look_up(parts, rows)
            return best(scores[scores > 0], rows[scores > 0], k, order)
        accumulator = self._accumulator()
        try:
            for start, stop, times in parts:
                np.add.at(accumulator, self._rows[start:stop], _scaled(self._impacts[start:stop], times))
            rows = self._candidates(accumulator, parts, postings, k, allowed)
            return best(accumulator[rows], rows, k, order)
        finally:
            self._clear(accumulator, parts, postings)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of some documents, to the bit those of `search`.

        Args:
            words: of the query.
            rows: int64 [m], in any order, each in 0 to n - 1.

        Returns:
            float32 [m], 0 for a document that shares no word with the query.
        """
        return self._look_up(self._parts(words), rows)

    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]:
        """What each word of a query adds to one document's score: word -> impact, 0 where the document lacks it."""
        at = np.array([row], np.int64)
        return {word: float(self.score([word] * count, at)[0]) for word, count in Counter(words).items()}

    @property
    def postings(self) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]:
        """Starts int64 [v + 1], rows uint32 [p] and impacts float32 [p], as for the class; never to be changed."""
        return self._starts, self._rows, self._impacts

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with the number of documents that hold it, in the order of the words' UTF-8 bytes."""
        for row in range(len(self.vocabulary)):
            yield self.vocabulary.word(row), int(self._starts[row + 1] - self._starts[row])

    @property
    def largest(self) -> float:
        """The largest impact of any word: about what one rare word adds; 0 in an index of nothing."""
        return self._largest

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all, as `largest`."""
        if alive is None:
            return self.largest
        largest = 0.0
        for word in np.argsort(-self._maxima, kind="stable").tolist():
            if self._maxima[word] <= largest:
                break
            held = slice(int(self._starts[word]), int(self._starts[word + 1]))
            largest = max(largest, float(self._impacts[held][alive.mask[self._rows[held]]].max(initial=0.0)))
        return largest

    def holds(self, word: str) -> bool:
        """Whether any document holds a word, or another of its term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """What no document's score exceeds: the largest impact of every word of a query, added up; 0 for no word."""
        counted = self._counts(words)
        rows = ((self.vocabulary.row(word), count) for word, count in counted.items())
        return float(sum(float(self._maxima[row]) * count for row, count in rows if row >= 0))

    def _parts(self, words: Sequence[str]) -> list[_Postings]:
        """The query's words that have postings, in the order of the vocabulary, so that sums round alike."""
        postings = sorted(
            (row, count)
            for word, count in self._counts(words).items()
            if (row := self.vocabulary.row(word)) >= 0
        )
        return [
            _Postings(int(self._starts[row]), int(self._starts[row + 1]), count) for row, count in postings
        ]

    def _counts(self, words: Sequence[str]) -> Counter[str]:
        """The terms of a query. A stop word has none, though its stem may be that of another word."""
        if self.analyzer.name == "plain":
            return Counter(words)
        return Counter(self.analyzer.term(word) for word in words if is_lexical(word))

    def _look_up(self, parts: Sequence[_Postings], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.zeros(len(rows), np.float32)
        wanted = rows.astype(np.uint32)  # of another type, the search would convert the postings
        for start, stop, times in parts:
            held = self._rows[start:stop]
            places = np.minimum(np.searchsorted(held, wanted), stop - start - 1)
            here = held[places] == wanted
            scores[here] += _scaled(self._impacts[start:stop][places[here]], times)
        return scores

    def _accumulator(self) -> NDArray[np.float32]:
        """This thread's float32 [n], all zeros."""
        accumulator: NDArray[np.float32] | None = getattr(self._local, "accumulator", None)
        if accumulator is None:
            accumulator = np.zeros(len(self), np.float32)
            self._local.accumulator = accumulator
        return accumulator

    def _clear(self, accumulator: NDArray[np.float32], parts: Sequence[_Postings], postings: int) -> None:
        if postings * DOCUMENTS_PER_POSTING > len(self):
            accumulator.fill(0.0)
            return
        for start, stop, _ in parts:
            accumulator[self._rows[start:stop]] = 0.0

    def _candidates(
        self,
        accumulator: NDArray[np.float32],
        parts: Sequence[_Postings],
        postings: int,
        k: int,
        allowed: RowMask | None,
    ) -> NDArray[np.int64]:
        """Rows with a score, among them the k best and all that tie with the last of these."""
        if postings * DOCUMENTS_PER_POSTING > len(self):
            rows = np.flatnonzero(accumulator > 0)  # of booleans: several times as fast as of floats
            return rows if allowed is None else rows[allowed.mask[rows]]
        every = [self._rows[start:stop] for start, stop, _ in parts]
        held = np.concatenate(every) if every else np.empty(0, np.uint32)
        if allowed is not None:
            held = held[allowed.mask[held]]
        # A document comes at most once a word, so the k * words best places hold at least k documents.
        places = k * len(parts)
        if places < len(held):
            scores = accumulator[held]
            held = held[scores >= np.partition(scores, -places)[-places]]
        return np.unique(held).astype(np.int64)

    @classmethod
    def open(cls, folder: Path) -> "ImpactIndex":
        """Opens an index whose checksums were verified before; postings are memory-mapped.

        Args:
            folder: holds `IMPACTS_FILES`.

        Raises:
            FormatError: if a file is missing, of another format, or does not fit the others; it is named.
        """
        header = read_impacts_header(folder)
        vocabulary = Vocabulary.load(folder)
        starts, maxima, rows, impacts = read_arrays(folder, header, len(vocabulary))
        return cls(header, vocabulary, starts, maxima, rows, impacts)


def _scaled(impacts: NDArray[np.float32], times: int) -> NDArray[np.float32]:
    return impacts if times == 1 else impacts * np.float32(times)
