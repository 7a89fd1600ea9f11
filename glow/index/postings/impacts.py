"""The inverted index: word -> its documents, and what the word adds to the score of each (its impact).

A document's score is the sum of its impacts over the query's words, with repetitions: BM25 with BM25's impacts
(`glow.index.postings.build`), or another term weighting with learned ones. Stop words have postings, which only a query of stop
words alone uses: they take no part in lengths, `largest` and other queries. The index itself analyzes words into terms, so
searches pass words. The layout is the column-wise one of BM25S (Lu 2024, https://arxiv.org/abs/2407.03618).

    n   documents       p   postings        v   words       k   hits
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.lists import (
    POSTINGS_PER_LOOKUP,
    Block,
    ImpactHeader,
    Lists,
    PostingList,
    Vocabulary,
    read_impacts_header,
    read_lists,
)
from glow.index.ranking import Ranking, RowMask, best
from glow.index.segment import Segments
from glow.storage import largest_places
from glow.text import STOP_WORDS, Analyzer, searched_words

DOCUMENTS_PER_POSTING = 8
"""With less than one posting per this many documents, visiting postings is less work than visiting all documents."""


def look_up(lists: Sequence[PostingList], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sums of documents int64 [m], in any order: float32 [m], bit for bit those of `ScoreAccumulator.search`."""
    return look_up_each([lists], rows)[:, 0]


def look_up_each(words: Sequence[Sequence[PostingList]], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sums of given documents over the lists of each word, float32 [m, words]."""
    scores = np.zeros((len(rows), len(words)), np.float32)
    order = np.argsort(rows, kind="stable")
    sought = rows[order].astype(np.uint32)  # another type would make the search convert the postings
    for column, lists in enumerate(words):
        for each in lists:
            here, places = each.find(sought)
            scores[order[here], column] += each.impacts(places)
    return scores


class ScoreAccumulator:
    """Accumulates term scores per document; safe to use from many threads. Each thread reuses one float32 array [n]."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._local = threading.local()

    def search(
        self,
        lists: Sequence[PostingList],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest sums, all > 0; arguments and result as `ImpactIndex.search`."""
        postings = sum(each.count for each in lists)
        if allowed is not None and allowed.count * POSTINGS_PER_LOOKUP * len(lists) < postings:
            rows = allowed.rows
            scores = look_up(lists, rows)
            return best(scores[scores > 0], rows[scores > 0], k, order)
        accumulator = self._accumulator()
        added: list[NDArray[np.uint32]] = []
        try:
            for each in lists:
                added.append(each.rows)
                np.add.at(accumulator, each.rows, each.impacts())
            rows = self._candidates(accumulator, added, k, allowed)
            return best(accumulator[rows], rows, k, order)
        finally:
            self._clear(accumulator, added)

    def _accumulator(self) -> NDArray[np.float32]:
        """This thread's float32 [n], all zeros."""
        accumulator: NDArray[np.float32] | None = getattr(self._local, "accumulator", None)
        if accumulator is None:
            accumulator = np.zeros(self._documents, np.float32)
            self._local.accumulator = accumulator
        return accumulator

    def _clear(self, accumulator: NDArray[np.float32], added: Sequence[NDArray[np.uint32]]) -> None:
        if sum(map(len, added)) * DOCUMENTS_PER_POSTING > self._documents:
            accumulator.fill(0.0)
            return
        for rows in added:
            accumulator[rows] = 0.0

    def _candidates(
        self,
        accumulator: NDArray[np.float32],
        added: Sequence[NDArray[np.uint32]],
        k: int,
        allowed: RowMask | None,
    ) -> NDArray[np.int64]:
        """Rows with a score, among them the k best and all that tie with the last of these."""
        if sum(map(len, added)) * DOCUMENTS_PER_POSTING > self._documents:
            rows = np.flatnonzero(accumulator > 0)  # of booleans: several times as fast as of floats
            return _allowed(rows, allowed)
        candidates = np.concatenate(added) if added else np.empty(0, np.uint32)
        if allowed is not None:
            candidates = candidates[allowed.mask[candidates]]
        # A document comes at most once a list, so the k * lists best places hold at least k documents.
        places = k * len(added)
        if places < len(candidates):
            scores = accumulator[candidates]
            candidates = candidates[scores >= np.partition(scores, -places)[-places]]
        return np.unique(candidates).astype(np.int64)


def _allowed(rows: NDArray[np.int64], allowed: RowMask | None) -> NDArray[np.int64]:
    return rows if allowed is None else rows[allowed.mask[rows]]


class ImpactsView(Protocol):
    """A lexical index for searches; `ImpactIndex` describes each method."""

    @property
    def largest(self) -> float: ...
    @property
    def analyzer(self) -> Analyzer: ...
    @property
    def is_remote(self) -> bool: ...
    def __len__(self) -> int: ...
    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking: ...
    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def holds(self, word: str) -> bool: ...
    def rows_with(self, word: str) -> NDArray[np.int64]: ...
    def starting(self, prefix: str, most: int) -> dict[str, int]: ...
    def bound(self, words: Sequence[str]) -> float: ...


class StoredImpacts(ImpactsView, Protocol):
    """The lexical index of one segment, for joining; `ImpactIndex` describes each method."""

    def largest_of(self, alive: RowMask | None) -> float: ...


class SegmentImpacts(StoredImpacts, Protocol):
    """The same with what merging needs; `ImpactIndex` describes each method."""

    @property
    def header(self) -> ImpactHeader: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    def blocks(self, most: int) -> Iterator[Block]: ...
    def word_counts(self) -> Iterator[tuple[str, int]]: ...


class ImpactIndex:
    """An inverted index, memory-mapped; safe to search from many threads."""

    is_remote = False

    def __init__(self, header: ImpactHeader, vocabulary: Vocabulary, postings: Lists) -> None:
        self.header = header
        self.vocabulary = vocabulary
        self.analyzer = Analyzer(header.analyzer)  # turns words into the vocabulary's terms
        self.postings = postings
        self._largest = float(lexical_maxima(self, postings.maxima).max(initial=0.0))
        self._sums = ScoreAccumulator(header.documents)

    def __len__(self) -> int:
        return self.header.documents

    def search(
        self,
        words: Sequence[str],
        k: int,  # hits, >= 1
        allowed: RowMask | None = None,  # the documents that may be found; None: all
        order: NDArray[np.uint32] | None = None,  # uint32 [n], each document's rank among ties; None: its row
    ) -> Ranking:
        """Finds the k documents with the highest scores.

        Returns scores float32 [k'] descending, all > 0, and rows int64 [k'], k' <= k: documents without a word of the
        query are left out.
        """
        return self._sums.search(self.lists(words), k, allowed, order)

    def score(
        self,
        words: Sequence[str],
        rows: NDArray[np.int64],  # int64 [m], in any order, each in 0 to n - 1
    ) -> NDArray[np.float32]:
        """The scores of given documents, bit for bit those of `search`.

        Returns float32 [m], 0 for a document without a word of the query.
        """
        return look_up(self.lists(words), rows)

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]; 0 if a document lacks it."""
        return look_up_each([self.lists([word]) for word in words], rows)

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings in the order of words, in blocks of about `most`; codes, if impacts are learned."""
        return self.postings.blocks(most)

    def cause(self, word: str, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        place = self.vocabulary.row(self.analyzer.term(word))
        return None if place < 0 else self.postings.cause(place, row)

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        starts = self.postings.starts
        for row in range(len(self.vocabulary)):
            yield self.vocabulary.word(row), int(starts[row + 1] - starts[row])

    @property
    def largest(self) -> float:
        """The largest impact of any word but stop words: about what one rare word adds; 0 in an empty index."""
        return self._largest

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all, as `largest`."""
        if alive is None:
            return self.largest
        largest = 0.0
        maxima = lexical_maxima(self, self.postings.maxima)
        for word in np.argsort(-maxima, kind="stable").tolist():
            if maxima[word] <= largest:
                break
            postings = self.postings.list(word, 1.0)
            largest = max(largest, float(postings.impacts()[alive.mask[postings.rows]].max(initial=0)))
        return largest

    def holds(self, word: str) -> bool:
        """Whether any document has a word, or another with the same term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def rows_with(self, word: str) -> NDArray[np.int64]:
        """The documents that hold a word, or another with the same term; int64 [m], ascending."""
        row = self.vocabulary.row(self.analyzer.term(word))
        return self.postings.list(row, 1.0).rows.astype(np.int64) if row >= 0 else np.empty(0, np.int64)

    def starting(self, prefix: str, most: int) -> dict[str, int]:
        """The most frequent terms that begin with a prefix, with their document frequencies."""
        rows = self.vocabulary.starting(prefix)
        dfs = np.diff(self.postings.starts[rows.start : rows.stop + 1])
        places = largest_places(dfs, most).tolist()
        return {self.vocabulary.word(rows.start + place): int(dfs[place]) for place in places}

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores: the sum of the largest impacts of a query's words; 0 without words."""
        counted = count_terms(self.analyzer, words)
        rows = ((self.vocabulary.row(word), count) for word, count in counted.items())
        return float(sum(float(self.postings.maxima[row]) * count for row, count in rows if row >= 0))

    def lists(self, words: Sequence[str]) -> list[PostingList]:
        """The postings of a query's words, in the order of the vocabulary, so that sums are rounded alike."""
        rows = sorted(
            (row, count)
            for word, count in count_terms(self.analyzer, words).items()
            if (row := self.vocabulary.row(word)) >= 0
        )
        return [self.postings.list(row, count) for row, count in rows]

    @classmethod
    def open(cls, folder: Path) -> "ImpactIndex":
        """Opens an index with verified checksums; postings are memory-mapped."""
        header = read_impacts_header(folder)
        vocabulary = Vocabulary.load(folder)
        return cls(header, vocabulary, read_lists(folder, header, len(vocabulary)))


def count_terms(analyzer: Analyzer, words: Sequence[str]) -> dict[str, int]:
    """The terms of a query, and how often it has each; stop words only if it has no other words."""
    counts: dict[str, int] = {}  # a Counter takes five times as long for a few words
    for term in map(analyzer.term, searched_words(words)):
        counts[term] = counts.get(term, 0) + 1
    return counts


def lexical_maxima(index: "SegmentImpacts", maxima: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each word's largest impact, float32 [v], as a copy; 0 for stop words."""
    copied = maxima.copy()
    rows = (index.vocabulary.row(index.analyzer.term(word)) for word in STOP_WORDS)
    copied[[row for row in rows if row >= 0]] = 0.0
    return copied


W = TypeVar("W", bound=StoredImpacts)


class SegmentedImpacts(Generic[W]):
    """Impacts of all segments. Later ones use the base's idf and average length, so scores are comparable."""

    def __init__(self, segments: Segments[W]) -> None:
        self._segments = segments
        parts = zip(segments.readers, segments.layout.alive, strict=True)
        # Without deleted documents, as in a rebuild.
        self.largest = max(reader.largest_of(alive) for reader, alive in parts)
        self.analyzer = segments.readers[0].analyzer
        self.is_remote = segments.readers[0].is_remote

    def __len__(self) -> int:
        return len(self._segments)

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k documents with the highest scores in all segments; arguments as for `ImpactIndex`."""

        def find(reader: W, rows: RowMask | None, ranks: NDArray[np.uint32] | None) -> Ranking:
            return reader.search(words, k, rows, ranks)

        return self._segments.search(find, k, allowed, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents, bit for bit those of `search`."""
        return self._segments.gather(rows, lambda reader, here: reader.score(words, here))

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]."""
        return self._segments.gather(rows, lambda reader, here: reader.by_word(words, here))

    def holds(self, word: str) -> bool:
        """Whether any document has a word, or another with the same term; deleted documents count until the next build."""
        return any(reader.holds(word) for reader in self._segments.readers)

    def rows_with(self, word: str) -> NDArray[np.int64]:
        """The documents that hold a word, or another with the same term; int64 [m], ascending."""
        layout = self._segments.layout
        parts = zip(layout.starts.tolist(), self._segments.readers, layout.alive, strict=False)
        lists = [
            start + (rows if alive is None else rows[alive.mask[rows]])
            for start, reader, alive in parts
            for rows in (reader.rows_with(word),)
        ]
        return np.concatenate(lists)

    def starting(self, prefix: str, most: int) -> dict[str, int]:
        """The most frequent terms that begin with a prefix, with their document frequencies in all segments."""
        counts: Counter[str] = Counter()
        for reader in self._segments.readers:
            counts.update(reader.starting(prefix, most))
        return dict(counts.most_common(most))

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return max(reader.bound(words) for reader in self._segments.readers)
