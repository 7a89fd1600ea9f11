"""The inverted index: word -> the documents that hold it, and what the word adds to the score of each (its impact).

A document's score is the sum of its impacts over the words of the query, each as often as the query has it: BM25
where the impacts are BM25's (`glow.search.bm25`), and any other term weighting where they are learned. The index
brings its own vocabulary, so neither stop words nor punctuation need a rule at query time: what has no postings adds
nothing. Where the analyzer makes terms of words, the index does so itself: whoever searches gives words. The lay-out is the column-wise one of BM25S (Lu 2024, https://arxiv.org/abs/2407.03618).

    n   documents       p   postings        v   words       k   hits
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.search.lexical.format import ImpactHeader, read_arrays, read_impacts_header
from glow.search.lexical.postings import PostingList, Sums, look_up
from glow.search.lexical.vocabulary import Vocabulary
from glow.search.ranking import Ranking
from glow.search.row_mask import RowMask
from glow.text import Analyzer, is_lexical

__all__ = ["ImpactIndex"]


class Postings(NamedTuple):
    """The arrays of an index: starts int64 [v + 1], and rows, impacts and causes [p] as the class has them."""

    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None


class ImpactIndex:
    """An inverted index, memory-mapped; safe to search from many threads.

    Args:
        header: kind and counts.
        vocabulary: the words.
        starts: int64 [v + 1], where the postings of each word start.
        maxima: float32 [v], each word's largest impact.
        rows: uint32 [p], per word the documents that hold it, ascending.
        impacts: float32 [p], finite and > 0; or uint8 codes > 0, times the header's unit.
        causes: uint8 [p] of learned impacts, the place of the document's word that each comes from; None where words count for
            themselves.

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
        impacts: NDArray[np.float32] | NDArray[np.uint8],
        causes: NDArray[np.uint8] | None = None,
    ) -> None:
        self.header = header
        self.vocabulary = vocabulary
        self.analyzer = Analyzer(header.analyzer)
        self._starts = starts
        self._maxima = maxima
        self._rows = rows
        self._impacts = impacts
        self._largest = float(maxima.max(initial=0.0))
        self._causes = causes
        self._unit = header.unit
        self._sums = Sums(header.documents)

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
        return self._sums.search(self.lists(words), k, allowed, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of some documents, to the bit those of `search`.

        Args:
            words: of the query.
            rows: int64 [m], in any order, each in 0 to n - 1.

        Returns:
            float32 [m], 0 for a document that shares no word with the query.
        """
        return look_up(self.lists(words), rows)

    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]:
        """What each word of a query adds to one document's score: word -> impact, 0 where the document lacks it."""
        at = np.array([row], np.int64)
        return {word: float(self.score([word] * count, at)[0]) for word, count in Counter(words).items()}

    @property
    def postings(self) -> Postings:
        """All postings as they are stored; never to be changed."""
        return Postings(self._starts, self._rows, self._impacts, self._causes)

    def cause(self, word: str, row: int) -> int | None:
        """The place of the document's word that a word counts for; None where it does not, or its impact was not learned."""
        place = self.vocabulary.row(self.analyzer.term(word))
        if place < 0 or self._causes is None:
            return None
        held = slice(int(self._starts[place]), int(self._starts[place + 1]))
        at = int(np.searchsorted(self._rows[held], np.uint32(row)))
        is_there = at < held.stop - held.start and int(self._rows[held][at]) == row
        return int(self._causes[held][at]) if is_there else None

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
            largest = max(
                largest, self._unit * float(self._impacts[held][alive.mask[self._rows[held]]].max(initial=0))
            )
        return largest

    def holds(self, word: str) -> bool:
        """Whether any document holds a word, or another of its term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """What no document's score exceeds: the largest impact of every word of a query, added up; 0 for no word."""
        counted = self._counts(words)
        rows = ((self.vocabulary.row(word), count) for word, count in counted.items())
        return float(sum(float(self._maxima[row]) * count for row, count in rows if row >= 0))

    def lists(self, words: Sequence[str]) -> list[PostingList]:
        """The postings of a query's words, in the order of the vocabulary, so that sums round alike."""
        rows = sorted(
            (row, count)
            for word, count in self._counts(words).items()
            if (row := self.vocabulary.row(word)) >= 0
        )
        return [self._list(row, count) for row, count in rows]

    def _list(self, row: int, times: int) -> PostingList:
        held = slice(int(self._starts[row]), int(self._starts[row + 1]))
        return PostingList(self._rows[held], self._impacts[held], np.float32(self._unit * times))

    def _counts(self, words: Sequence[str]) -> Counter[str]:
        """The terms of a query. A stop word has none, though its stem may be that of another word."""
        if self.analyzer.name == "plain":
            return Counter(words)
        return Counter(self.analyzer.term(word) for word in words if is_lexical(word))

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
        return cls(header, vocabulary, *read_arrays(folder, header, len(vocabulary)))
