"""Term statistics: the number of documents with each word, and average lengths of fields.

`TermCounter` counts them in a stream of documents in bounded memory; `TermTable` is the finished, immutable result. On
disk they are four files that can be memory-mapped: the words sorted by their UTF-8 bytes and joined, their
offsets, their document frequencies, and a JSON header. A look-up is a binary search.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import ConfigError
from glow.options import StrictModel
from glow.storage import ABSENT, SortedStrings, map_array, read_header

TermStats = Literal["corpus", "model"]
"""Source of an index's term statistics: the indexed documents, or the model's training collection."""
QUERY = "query"
"""The pseudo field whose average length is that of queries."""
DEFAULT_MAX_WORDS = 2_000_000
# Meant for words of queries; explained documents pass all their words through too, which must not fill the memory.
CACHED_WORDS = 20_000
# Longer words are data, not language: they count for lengths and are never stored.
MAX_WORD_CHARACTERS = 128


class TermTable:
    """Term statistics of one collection: document frequencies and average lengths."""

    def __init__(
        self,
        words: SortedStrings,
        dfs: NDArray[np.uint32],  # uint32 [n], document frequency of each word, >= 1
        documents: int,  # N, >= 0
        lengths: Mapping[str, float],  # field, or `QUERY` -> average length in words, where it is not empty
        dropped_words: int = 0,  # left out to limit the size; a word that was dropped twice counts twice
    ) -> None:
        self._words = words
        self._dfs = dfs
        # A cached method would keep the mapped files in a reference cycle, which only the collector frees.
        self._cached_df = lru_cache(maxsize=CACHED_WORDS)(partial(_df, words, dfs))
        self.documents = documents
        self.lengths = {field: float(lengths[field]) for field in sorted(lengths)}
        self.dropped_words = dropped_words

    def __len__(self) -> int:
        return len(self._dfs)

    def items(self) -> Iterable[tuple[str, int]]:
        """Every word with its document frequency, in sorted order."""
        for row in range(len(self)):
            yield self._words.value(row), int(self._dfs[row])

    def average_length(self, field: str) -> float:
        """Average length in words of a field, or of queries under `QUERY`; 1 if unknown."""
        return max(self.lengths.get(field, 1.0), 1.0)

    def df(self, word: str) -> int:
        """Document frequency of a word; 0 if it is unknown. The first look-up is a binary search of about 10 µs."""
        return self._cached_df(word) if len(word) <= MAX_WORD_CHARACTERS else 0

    @property
    def hash(self) -> str:
        """SHA-256 over everything that can change a weight, as hexadecimal digits."""
        digest = hashlib.sha256(json.dumps([self.documents, self.lengths], sort_keys=True).encode())
        digest.update(self._words.text)
        digest.update(np.ascontiguousarray(self._words.ends).data)
        digest.update(np.ascontiguousarray(self._dfs).data)
        return digest.hexdigest()

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], documents: int, lengths: Mapping[str, float], dropped_words: int = 0
    ) -> "TermTable":
        """Builds statistics from word -> document frequency."""
        rows = sorted((word.encode("utf-8", "replace"), df) for word, df in counts.items())
        dfs = np.fromiter((df for _, df in rows), np.uint32, len(rows))
        return cls(SortedStrings.pack(word for word, _ in rows), dfs, documents, lengths, dropped_words)

    def with_lengths(self, lengths: Mapping[str, float]) -> "TermTable":
        """The same words, with some average lengths replaced or added."""
        merged = {**self.lengths, **lengths}
        return TermTable(self._words, self._dfs, self.documents, merged, self.dropped_words)

    def with_missing(self, other: "TermTable") -> "TermTable":
        """These statistics, and the words that only another table of the same documents has."""
        if not len(other):
            return self
        counts = {**dict(other.items()), **dict(self.items())}
        dropped = self.dropped_words + other.dropped_words
        return TermTable.from_counts(counts, self.documents, self.lengths, dropped)

    def save(self, folder: Path) -> None:
        """Writes the four files into `folder`, which is created if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        self._words.save(folder / "words.bin", folder / "offsets.npy")
        np.save(folder / "dfs.npy", self._dfs, allow_pickle=False)
        header = _Header(
            format=1,
            documents=self.documents,
            words=len(self),
            dropped_words=self.dropped_words,
            average_lengths=self.lengths,
        )
        header.save(folder / "terms.json")

    @classmethod
    def load(cls, folder: Path) -> "TermTable":
        """Memory-maps saved statistics without reading the words; a `FormatError` if a file is missing or damaged."""
        header = read_header(folder / "terms.json", _Header)
        words = SortedStrings.open(folder / "words.bin", folder / "offsets.npy", header.words)
        dfs = map_array(folder / "dfs.npy", np.uint32, header.words)
        return cls(words, dfs, header.documents, header.average_lengths, header.dropped_words)


def _df(words: SortedStrings, dfs: NDArray[np.uint32], word: str) -> int:
    row = words.find(word.encode("utf-8", "replace"))
    return 0 if row == ABSENT else int(dfs[row])


class _Header(StrictModel):
    """`terms.json`."""

    format: Literal[1]
    documents: int = Field(ge=0)
    words: int = Field(ge=0)
    dropped_words: int = Field(ge=0)
    average_lengths: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]


class TermCounter:
    """Accumulates term statistics from a stream of documents.

    Memory is bounded: whenever it has a quarter more than `max_words` distinct words, the rarest are dropped and
    counted. A dropped word that appears again starts at 0. So once `dropped_words` is above 0, frequencies of rare words are
    lower bounds; frequent words are exact unless they first appear late.
    """

    def __init__(self, max_words: int = DEFAULT_MAX_WORDS) -> None:  # of the result, >= 1
        if max_words < 1:
            raise ConfigError(f"max_words must be at least 1, found {max_words}")
        self.max_words = max_words
        self.documents = 0
        self.dropped_words = 0
        self._dfs: Counter[str] = Counter()
        self._lengths: Counter[str] = Counter()
        self._present: Counter[str] = Counter()

    def add(self, fields: Mapping[str, Sequence[str]]) -> None:
        """Counts one document: field -> its words before truncation."""
        self.documents += 1
        unique: set[str] = set()
        for field, words in fields.items():
            if words:
                self._lengths[field] += len(words)
                self._present[field] += 1
                unique.update(words)
        self._dfs.update(word for word in unique if len(word) <= MAX_WORD_CHARACTERS)
        if len(self._dfs) > self.max_words + self.max_words // 4:
            self._dfs, dropped = self._most_frequent()
            self.dropped_words += dropped

    def add_query(self, words: Sequence[str]) -> None:
        """Counts a query's length only; its words do not add to document frequencies."""
        if words:
            self._lengths[QUERY] += len(words)
            self._present[QUERY] += 1

    def table(self) -> TermTable:
        """The finished statistics; counting may continue afterwards."""
        counts, dropped = self._most_frequent()
        lengths = {field: self._lengths[field] / self._present[field] for field in self._present}
        return TermTable.from_counts(counts, self.documents, lengths, self.dropped_words + dropped)

    def _most_frequent(self) -> tuple[Counter[str], int]:
        """The `max_words` most frequent words and the number of others; of ties, the smaller word stays."""
        excess = len(self._dfs) - self.max_words
        if excess <= 0:
            return self._dfs, 0
        ranked = sorted(self._dfs.items(), key=lambda item: (-item[1], item[0]))
        return Counter(dict(ranked[: self.max_words])), excess


def select_terms(source: TermStats, corpus: TermTable, model: TermTable) -> TermTable:
    """The term statistics of one index; those of a corpus lack the length of queries, which the model knows."""
    return model if source == "model" else corpus.with_lengths({QUERY: model.average_length(QUERY)})
