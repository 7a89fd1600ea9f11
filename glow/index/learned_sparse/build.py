"""Writes `learned/`: the learned words of every document as an inverted index of 8-bit impacts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.learned_sparse.impacts import LearnedWords
from glow.index.postings import ImpactHeader, ImpactWriter, pack_codes

__all__ = ["build_learned"]


def build_learned(
    folder: Path,
    rows: Iterable[LearnedWords],
    words: Sequence[str],
    unit: float,
    budget: int,
    join: Callable[[Sequence[LearnedWords]], LearnedWords] | None = None,
    first: NDArray[np.int64] | NDArray[np.uint32] | None = None,
) -> ImpactHeader:
    """Writes the folder.

    Args:
        folder: created if missing.
        rows: the words of each document, or of each passage, in order.
        words: the vocabulary, sorted by UTF-8 bytes.
        unit: impact of code 1.
        budget: most words of a document.
        join: combines the words of a document's passages, as `WordScorer.best_of`; required for passages.
        first: int [n + 1], the first row of each document if rows are passages; None: row i is document i.
    """
    documents = iter(rows)
    if first is not None and join is not None:
        documents = _by_document(documents, first, join)
    with ImpactWriter(folder, words) as writer:
        for document in documents:
            writer.add(document.words.tolist(), pack_codes(document.codes, document.causes).tolist())
        parameters = {"unit": unit, "budget": float(budget)}
        return writer.finish("learned", lambda _words, _rows, values: values, parameters)


def _by_document(
    rows: Iterator[LearnedWords],
    first: NDArray[np.int64] | NDArray[np.uint32],
    join: Callable[[Sequence[LearnedWords]], LearnedWords],
) -> Iterator[LearnedWords]:
    for start, stop in pairwise(first.tolist()):
        yield join(list(islice(rows, stop - start)))
