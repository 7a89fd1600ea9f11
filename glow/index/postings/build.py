"""Writes an inverted index in bounded memory: sorts chunks by word, then moves each posting to its place.

Postings arrive by document and are stored by word. They are collected in chunks, which are sorted by word and written
to a working file. When all are counted, the place of every word is known, and one pass over the chunks moves each
posting to its place. Documents arrive in the order of rows, so rows ascend within a word.

    n   documents       p   postings        v   words
"""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.impacts import SegmentImpacts
from glow.index.postings.lists import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    Block,
    ImpactHeader,
    Vocabulary,
)
from glow.storage import new_array
from glow.text import (
    STOP_WORDS,
    WEAK_FREQUENCY,
    Analyzer,
    AnalyzerName,
    LexicalFields,
    TermTable,
    bm25_weight,
    idf_of_words,
    is_indexed,
)

CHUNK_POSTINGS = 1 << 21
"""Sorting this many takes about 120 MB."""
SPOOL_FILE = "spool.tmp"
Chunk = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]
"""Word, row and value of each posting, sorted by word."""
ToImpacts = Callable[[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]], NDArray[Any]]
"""Word, row and value of some postings -> their impacts, finite and > 0."""


class ImpactWriter:
    """Writes an inverted index; use as a context manager, which removes the working file."""

    def __init__(
        self,
        folder: Path,  # to create; `finish` fills it
        # The vocabulary (terms, if the analyzer makes them), sorted by UTF-8 bytes; words without postings
        # are left out
        words: Sequence[str],
        chunk_postings: int = CHUNK_POSTINGS,  # number of postings to sort at once, which limits the memory
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.documents = 0
        self._folder = folder
        self._words = words
        self._chunk_postings = chunk_postings
        self._counts = np.zeros(len(words), np.int64)
        self._chunks: list[int] = []
        self._spool = (folder / SPOOL_FILE).open("w+b")
        self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()
        (self._folder / SPOOL_FILE).unlink()

    def add(
        self,
        words: Collection[int],
        values: Collection[float],  # inputs of `to_impacts`, one per word; rounded to float32
    ) -> None:
        """Adds the next document."""
        self._ids.extend(words)
        self._values.extend(values)
        self._sizes.append(len(words))
        self.documents += 1
        if len(self._ids) >= self._chunk_postings:
            self._flush()

    def finish(
        self,
        # kind, parameters, analyzer: for the header. For `learned`, the values are from `pack_codes`, and
        # `unit` is a parameter
        kind: Literal["bm25", "learned"],
        to_impacts: ToImpacts,
        parameters: dict[str, float],
        analyzer: AnalyzerName = "plain",
        fields: LexicalFields | None = None,
    ) -> ImpactHeader:
        """Writes the index's files."""
        self._flush()
        numbers = np.flatnonzero(self._counts)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts[numbers])])
        header = ImpactHeader(
            kind=kind,
            analyzer=analyzer,
            documents=self.documents,
            words=len(numbers),
            postings=int(starts[-1]),
            parameters=parameters,
            fields=fields or LexicalFields(),
        )
        Vocabulary.save(self._folder, (self._words[row] for row in numbers.tolist()))
        np.save(self._folder / STARTS_FILE, starts)
        maxima = self._place(starts, header.postings, to_impacts)
        if kind == "learned":
            maxima = np.float32(header.unit) * _unpack(self._folder, header.postings, starts)
        np.save(self._folder / MAXIMA_FILE, maxima)
        header.save(self._folder / IMPACTS_HEADER)
        return header

    def _place(self, starts: NDArray[np.int64], postings: int, to_impacts: ToImpacts) -> NDArray[np.float32]:
        """Moves every posting to its place; returns each word's largest impact, float32 [v]."""
        all_rows = new_array(self._folder / ROWS_FILE, np.uint32, postings)
        all_impacts = new_array(self._folder / VALUES_FILE, np.float32, postings)
        if postings == 0:
            return np.empty(0, np.float32)
        heads = np.cumsum(self._counts) - self._counts  # place of the next posting of each word
        for words, rows, values in self._read():
            there, first, counts = np.unique(words, return_index=True, return_counts=True)
            places = np.repeat(heads[there] - first, counts) + np.arange(len(words))
            all_rows[places] = rows
            all_impacts[places] = to_impacts(words, rows, values)
            heads[there] += counts
        maxima: NDArray[np.float32] = np.maximum.reduceat(all_impacts, starts[:-1])
        return maxima

    def _flush(self) -> None:
        words = np.array(self._ids, np.uint32)
        first = self.documents - len(self._sizes)
        rows = np.repeat(np.arange(first, self.documents, dtype=np.uint32), self._sizes)
        order = np.argsort(words, kind="stable")
        for part in (words[order], rows[order], np.array(self._values, np.float32)[order]):
            self._spool.write(part.tobytes())
        self._counts += np.bincount(words, minlength=len(self._counts))
        self._chunks.append(len(words))
        self._clear()

    def _clear(self) -> None:
        self._ids, self._values, self._sizes = array("I"), array("f"), array("I")

    def _read(self) -> Iterator[Chunk]:
        self._spool.seek(0)
        for size in self._chunks:
            words, rows = (np.frombuffer(self._spool.read(4 * size), np.uint32) for _ in range(2))
            yield words, rows, np.frombuffer(self._spool.read(4 * size), np.float32)


def pack_codes(codes: NDArray[np.uint8], causes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A code and its cause as one number, exact in float32: float32 [p]."""
    return (codes.astype(np.uint32) + (causes.astype(np.uint32) << np.uint32(8))).astype(np.float32)


def _unpack(folder: Path, postings: int, starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Replaces packed values by codes and causes; returns each word's largest code, float32 [v]."""
    packed = np.load(folder / VALUES_FILE, mmap_mode="r")
    codes = new_array(folder / CODES_FILE, np.uint8, postings)
    causes = new_array(folder / CAUSES_FILE, np.uint8, postings)
    for start in range(0, postings, CHUNK_POSTINGS):
        block = packed[start : start + CHUNK_POSTINGS].astype(np.uint32)
        codes[start : start + len(block)] = block & 0xFF
        causes[start : start + len(block)] = block >> 8
    maxima = np.maximum.reduceat(codes, starts[:-1]) if postings else np.empty(0, np.uint8)
    del packed
    (folder / VALUES_FILE).unlink()
    return maxima.astype(np.float32)


OnWords = Callable[[Iterable[tuple[str, int]]], object]


@dataclass(frozen=True, slots=True)
class Bm25:
    """Parameters of BM25; docs/decisions/0006 has the measurements behind the defaults."""

    k1: float = 1.2  # how slowly repetitions of a word lose their effect, > 0
    b: float = 0.75  # effect of a document's length, in [0, 1]


def build_lexical(
    folder: Path,
    documents: Iterable[Iterable[str]],
    # Word statistics of these documents: their words are the vocabulary, which limits the memory
    corpus: TermTable,
    # The index's statistics, for idf; of terms, if the analyzer makes them. A missing word or term counts as
    # one of a single document
    terms: TermTable,
    bm25: Bm25 | None = None,
    chunk_postings: int = CHUNK_POSTINGS,
    # In words, > 0, of the collection that is extended; None: that of these documents
    average_length: float | None = None,
    analyzer: Analyzer | None = None,  # turns words into terms; None: `plain`
    # Called with each word of the documents and its document frequency, in the order of the words' UTF-8
    # bytes
    on_words: OnWords | None = None,
    fields: LexicalFields | None = None,  # the rule of the documents' words, for the header
    # The weak words of each document; they change no length
    weak_words: Iterable[Collection[str]] = repeat(()),
) -> ImpactHeader:
    """Writes BM25 impacts of documents into a directory."""
    bm25 = bm25 or Bm25()
    vocabulary = _Vocabulary(corpus, analyzer or Analyzer())
    lengths = array("I")
    with ImpactWriter(folder, vocabulary.terms, chunk_postings) as writer:
        for document, weak in zip(documents, weak_words, strict=False):
            counts, added = vocabulary.count(document, weak)
            frequencies = [*counts.values(), *repeat(WEAK_FREQUENCY, len(added))]
            writer.add([*counts, *added], frequencies)
            lengths.append(counts.total() - sum(counts[row] for row in counts.keys() & vocabulary.stop_words))
        if on_words is not None:
            on_words(vocabulary.document_frequencies())
        idf = idf_of_words(vocabulary.terms, terms)
        length = np.array(lengths, np.float64)
        own = max(float(length.mean()), 1.0) if len(length) else 1.0
        average = average_length or own

        def to_impacts(
            word: NDArray[np.uint32], row: NDArray[np.uint32], tf: NDArray[np.float32]
        ) -> NDArray[np.float64]:
            return bm25_weight(idf[word], tf.astype(np.float64), length[row], average, bm25.k1, bm25.b)

        parameters = {"k1": bm25.k1, "b": bm25.b, "average_length": average}
        return writer.finish("bm25", to_impacts, parameters, vocabulary.analyzer.name, fields)


class _Vocabulary:
    """The indexed words, with the term and document frequency of each."""

    def __init__(
        self,
        # Source of the words, in the order of their UTF-8 bytes; words that are not indexed are left out
        corpus: TermTable,
        analyzer: Analyzer,  # turns words into terms
    ) -> None:
        self.analyzer = analyzer
        self._words = [word for word, _ in corpus.items() if is_indexed(word)]
        self._ids = {word: place for place, word in enumerate(self._words)}
        self._dfs = np.zeros(len(self._words), np.uint32)
        self.terms, self._rows = self._words, np.empty(0, np.uint32)
        if analyzer.name != "plain":
            # Sorted by UTF-8 bytes; without stemming the words themselves
            self.terms = sorted({analyzer.term(word) for word in self._words}, key=str.encode)
            rows = {term: row for row, term in enumerate(self.terms)}
            self._rows = np.fromiter((rows[analyzer.term(word)] for word in self._words), np.uint32)
        stop_terms = set(map(analyzer.term, STOP_WORDS))
        self.stop_words = {row for row, term in enumerate(self.terms) if term in stop_terms}  # not in lengths

    def count(self, document: Iterable[str], weak: Iterable[str] = ()) -> tuple[Counter[int], list[int]]:
        """How often a document has each term, by the term's number, and the terms that only its weak words have.

        Words that are not in the vocabulary are ignored.
        """
        counts = Counter(place for word in document if (place := self._ids.get(word)) is not None)
        places = list(counts)
        added = [place for word in weak if (place := self._ids.get(word, -1)) >= 0 and place not in counts]
        self._dfs[places + added] += 1
        if self.terms is self._words:
            return counts, added
        merged: Counter[int] = Counter()
        for row, times in zip(self._rows[places].tolist(), counts.values(), strict=True):
            merged[row] += times
        return merged, [row for row in dict.fromkeys(self._rows[added].tolist()) if row not in merged]

    def document_frequencies(self) -> Iterator[tuple[str, int]]:
        """Each word of the documents, with its document frequency."""
        return ((word, df) for word, df in zip(self._words, self._dfs.tolist(), strict=True) if df)


BLOCK_POSTINGS = 1 << 20


def merge_impacts(
    # At least one, with its live documents, bool [n]. Parameters are those of the first
    segments: Sequence[tuple[SegmentImpacts, NDArray[np.bool_]]],
    folder: Path,
) -> ImpactHeader:
    """Writes one inverted index of the live documents of several: BM25's, or learned impacts of one unit."""
    folder.mkdir()
    sources, first_row = [], 0
    for index, live in segments:
        sources.append(_Source(index, live, first_row))
        first_row += int(np.count_nonzero(live))
    words = sorted({word for source in sources for word in source.words()}, key=str.encode)
    places = {word: place for place, word in enumerate(words)}
    counts = np.zeros(len(words), np.int64)
    for source in sources:
        source.moved = np.fromiter((places.get(word, -1) for word in source.all_words()), np.int64)
        counts[source.moved[source.counts > 0]] += source.counts[source.counts > 0]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    header = sources[0].index.header.model_copy(
        update={"documents": first_row, "words": len(words), "postings": int(starts[-1])}
    )
    Vocabulary.save(folder, words)
    np.save(folder / STARTS_FILE, starts)
    np.save(folder / MAXIMA_FILE, np.float32(header.unit) * _write(sources, starts, folder))
    header.save(folder / IMPACTS_HEADER)
    return header


class _Source:
    """The live postings of one segment."""

    def __init__(self, index: SegmentImpacts, live: NDArray[np.bool_], first_row: int) -> None:
        self.index = index
        self.mask = live
        self.new_rows = np.cumsum(live, dtype=np.int64) - 1 + first_row
        # int64 [v], number of live postings of each word
        self.counts = np.zeros(len(index.vocabulary), np.int64)
        for words, rows, _, _ in self.blocks():
            self.counts += np.bincount(words[self.mask[rows]], minlength=len(self.counts))
        # int64 [v], each word's position in the new vocabulary; -1 if it has no live postings
        self.moved = np.empty(0, np.int64)

    def all_words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in range(len(self.counts)))

    def words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in np.flatnonzero(self.counts).tolist())

    def blocks(self) -> Iterator[Block]:
        """The postings, in order, in blocks."""
        return self.index.blocks(BLOCK_POSTINGS)


def _write(sources: Sequence[_Source], starts: NDArray[np.int64], folder: Path) -> NDArray[np.float32]:
    """Moves every posting to its place; returns each word's largest impact or code, float32 [v]."""
    is_learned = sources[0].index.header.kind == "learned"
    all_rows = new_array(folder / ROWS_FILE, np.uint32, int(starts[-1]))
    kind, name = (np.uint8, CODES_FILE) if is_learned else (np.float32, VALUES_FILE)
    all_impacts = new_array(folder / name, kind, int(starts[-1]))
    all_causes = new_array(folder / CAUSES_FILE, np.uint8, int(starts[-1])) if is_learned else None
    heads = starts[:-1].copy()  # place of the next posting of each word
    maxima = np.zeros(len(heads), np.float32)
    for source in sources:
        for words, rows, impacts, causes in source.blocks():
            stay = source.mask[rows]
            moved = source.moved[words[stay]]
            there, first, counts = np.unique(moved, return_index=True, return_counts=True)
            # Words of a block ascend in the old vocabulary, and so in the new one.
            places = np.repeat(heads[there] - first, counts) + np.arange(len(moved))
            all_rows[places] = source.new_rows[rows[stay]]
            all_impacts[places] = impacts[stay]
            if all_causes is not None and causes is not None:
                all_causes[places] = causes[stay]
            np.maximum.at(maxima, moved, impacts[stay])
            heads[there] += counts
    return maxima
