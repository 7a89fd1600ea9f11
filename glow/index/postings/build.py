"""Writes an inverted index in bounded memory: sorts chunks by word, then moves each posting to its place.

Postings arrive by document and are stored by word. They are collected in chunks, which are sorted by word and written
to a working file. When all are counted, the place of every word is known, and one pass over the chunks moves each
posting to its place. Documents arrive in the order of rows, so rows ascend within a word.

    n   documents       p   postings        v   words
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
)
from glow.index.postings.vocabulary import Vocabulary
from glow.storage import new_array
from glow.text import AnalyzerName

__all__ = ["ImpactWriter", "ToImpacts", "pack_codes"]

CHUNK_POSTINGS = 1 << 21
"""Sorting this many takes about 120 MB."""
SPOOL_FILE = "spool.tmp"
Chunk = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]
"""Word, row and value of each posting, sorted by word."""
ToImpacts = Callable[[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]], NDArray[Any]]
"""Word, row and value of some postings -> their impacts, finite and > 0."""


class ImpactWriter:
    """Writes an inverted index; use as a context manager, which removes the working file.

    Args:
        folder: to create; `finish` fills it.
        words: the vocabulary (terms, if the analyzer makes them), sorted by UTF-8 bytes; words without postings are left out.
        chunk_postings: number of postings to sort at once, which limits the memory.
    """

    def __init__(self, folder: Path, words: Sequence[str], chunk_postings: int = CHUNK_POSTINGS) -> None:
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

    def add(self, words: Collection[int], values: Collection[float]) -> None:
        """Adds the next document.

        Args:
            words: positions in the vocabulary, each once.
            values: inputs of `to_impacts`, one per word; a float32 must hold them exactly.
        """
        self._ids.extend(words)
        self._values.extend(values)
        self._sizes.append(len(words))
        self.documents += 1
        if len(self._ids) >= self._chunk_postings:
            self._flush()

    def finish(
        self,
        kind: Literal["bm25", "learned"],
        to_impacts: ToImpacts,
        parameters: dict[str, float],
        analyzer: AnalyzerName = "plain",
    ) -> ImpactHeader:
        """Writes the index's files.

        Args:
            kind, parameters, analyzer: for the header. For `learned`, the values are from `pack_codes`, and `unit` is a parameter.
            to_impacts: computes impacts from values.
        """
        self._flush()
        kept = np.flatnonzero(self._counts)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts[kept])])
        header = ImpactHeader(
            kind=kind,
            analyzer=analyzer,
            documents=self.documents,
            words=len(kept),
            postings=int(starts[-1]),
            parameters=parameters,
        )
        Vocabulary.save(self._folder, (self._words[row] for row in kept.tolist()))
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
