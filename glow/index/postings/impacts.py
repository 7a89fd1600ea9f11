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

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.format import ImpactHeader, read_impacts_header
from glow.index.postings.lists import Block, Lists
from glow.index.postings.opening import read_lists
from glow.index.postings.posting_list import PostingList
from glow.index.postings.sums import ScoreAccumulator, look_up
from glow.index.postings.vocabulary import Vocabulary
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.text import Analyzer, is_lexical

__all__ = ["ImpactIndex"]


class ImpactIndex:
    """An inverted index, memory-mapped; safe to search from many threads.

    Args:
        header: kind and counts.
        vocabulary: the words.
        lists: of every word of it.

    Attributes:
        analyzer: makes the vocabulary's terms of words.
    """

    def __init__(self, header: ImpactHeader, vocabulary: Vocabulary, lists: Lists) -> None:
        self.header = header
        self.vocabulary = vocabulary
        self.analyzer = Analyzer(header.analyzer)
        self._lists = lists
        self._largest = float(lists.maxima.max(initial=0.0))
        self._sums = ScoreAccumulator(header.documents)

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

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings, word by word, about so many at a time; of learned impacts the codes."""
        return self._lists.blocks(most)

    def cause(self, word: str, row: int) -> int | None:
        """The place of the document's word that a word counts for; None where it does not, or its impact was not learned."""
        place = self.vocabulary.row(self.analyzer.term(word))
        return None if place < 0 else self._lists.cause(place, row)

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with the number of documents that hold it, in the order of the words' UTF-8 bytes."""
        starts = self._lists.starts
        for row in range(len(self.vocabulary)):
            yield self.vocabulary.word(row), int(starts[row + 1] - starts[row])

    @property
    def largest(self) -> float:
        """The largest impact of any word: about what one rare word adds; 0 in an index of nothing."""
        return self._largest

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all, as `largest`."""
        if alive is None:
            return self.largest
        largest = 0.0
        for word in np.argsort(-self._lists.maxima, kind="stable").tolist():
            if self._lists.maxima[word] <= largest:
                break
            postings = self._lists.list(word, 1.0)
            largest = max(largest, float(postings.impacts()[alive.mask[postings.rows]].max(initial=0)))
        return largest

    def holds(self, word: str) -> bool:
        """Whether any document holds a word, or another of its term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """What no document's score exceeds: the largest impact of every word of a query, added up; 0 for no word."""
        counted = self._counts(words)
        rows = ((self.vocabulary.row(word), count) for word, count in counted.items())
        return float(sum(float(self._lists.maxima[row]) * count for row, count in rows if row >= 0))

    def lists(self, words: Sequence[str]) -> list[PostingList]:
        """The postings of a query's words, in the order of the vocabulary, so that sums round alike."""
        rows = sorted(
            (row, count)
            for word, count in self._counts(words).items()
            if (row := self.vocabulary.row(word)) >= 0
        )
        return [self._lists.list(row, count) for row, count in rows]

    def _counts(self, words: Sequence[str]) -> Counter[str]:
        """The terms of a query. A stop word has none, though its stem may be that of another word."""
        if self.analyzer.name == "plain":
            return Counter(words)
        return Counter(self.analyzer.term(word) for word in words if is_lexical(word))

    @classmethod
    def open(cls, folder: Path) -> "ImpactIndex":
        """Opens an index whose checksums were verified before; postings are memory-mapped.

        Args:
            folder: holds the files of `ImpactHeader.files`.

        Raises:
            FormatError: if a file is missing, of another format, or does not fit the others; it is named.
        """
        header = read_impacts_header(folder)
        vocabulary = Vocabulary.load(folder)
        return cls(header, vocabulary, read_lists(folder, header, len(vocabulary)))
