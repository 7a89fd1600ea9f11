"""The inverted index: word -> its documents, and what the word adds to the score of each (its impact).

A document's score is the sum of its impacts over the query's words, with repetitions: BM25 with BM25's impacts
(`glow.index.postings.bm25`), or another term weighting with learned ones. The index has its own vocabulary, so queries need no
rule for stop words and punctuation: words without postings add nothing. The index itself analyzes words into terms, so
searches pass words. The layout is the column-wise one of BM25S (Lu 2024, https://arxiv.org/abs/2407.03618).

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
from glow.index.postings.sums import ScoreAccumulator, look_up, look_up_each
from glow.index.postings.vocabulary import Vocabulary
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.text import Analyzer, is_lexical

__all__ = ["ImpactIndex", "count_terms"]


class ImpactIndex:
    """An inverted index, memory-mapped; safe to search from many threads.

    Args:
        header: kind and counts.
        vocabulary: the words.
        lists: postings of every word.

    Attributes:
        analyzer: turns words into the vocabulary's terms.
        is_remote: whether searches wait for a store.
    """

    is_remote = False

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
            words: of the query; repetitions count.
            k: hits, >= 1.
            allowed: the documents that may be found; None: all.
            order: uint32 [n], each document's rank among ties; None: its row.

        Returns:
            Scores float32 [k'] descending, all > 0, and rows int64 [k'], k' <= k: documents without a word of the query are
            left out.
        """
        return self._sums.search(self.lists(words), k, allowed, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents, bit for bit those of `search`.

        Args:
            words: of the query.
            rows: int64 [m], in any order, each in 0 to n - 1.

        Returns:
            float32 [m], 0 for a document without a word of the query.
        """
        return look_up(self.lists(words), rows)

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]; 0 if a document lacks it."""
        return look_up_each([self.lists([word]) for word in words], rows)

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings in the order of words, in blocks of about `most`; codes, if impacts are learned."""
        return self._lists.blocks(most)

    def cause(self, word: str, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        place = self.vocabulary.row(self.analyzer.term(word))
        return None if place < 0 else self._lists.cause(place, row)

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        starts = self._lists.starts
        for row in range(len(self.vocabulary)):
            yield self.vocabulary.word(row), int(starts[row + 1] - starts[row])

    @property
    def largest(self) -> float:
        """The largest impact of any word: about what one rare word adds; 0 in an empty index."""
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
        """Whether any document has a word, or another with the same term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores: the sum of the largest impacts of a query's words; 0 without words."""
        counted = count_terms(self.analyzer, words)
        rows = ((self.vocabulary.row(word), count) for word, count in counted.items())
        return float(sum(float(self._lists.maxima[row]) * count for row, count in rows if row >= 0))

    def lists(self, words: Sequence[str]) -> list[PostingList]:
        """The postings of a query's words, in the order of the vocabulary, so that sums are rounded alike."""
        rows = sorted(
            (row, count)
            for word, count in count_terms(self.analyzer, words).items()
            if (row := self.vocabulary.row(word)) >= 0
        )
        return [self._lists.list(row, count) for row, count in rows]

    @classmethod
    def open(cls, folder: Path) -> "ImpactIndex":
        """Opens an index with verified checksums; postings are memory-mapped.

        Args:
            folder: directory with the files of `ImpactHeader.files`.

        Raises:
            FormatError: if a file is missing, of another format, or inconsistent with the others; the message names it.
        """
        header = read_impacts_header(folder)
        vocabulary = Vocabulary.load(folder)
        return cls(header, vocabulary, read_lists(folder, header, len(vocabulary)))


def count_terms(analyzer: Analyzer, words: Sequence[str]) -> Counter[str]:
    """The terms of a query, and how often it has each. A stop word has none, even if another word has its stem."""
    if analyzer.name == "plain":
        return Counter(words)
    return Counter(analyzer.term(word) for word in words if is_lexical(word))
