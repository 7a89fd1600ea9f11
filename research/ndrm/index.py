"""NDRM's scores as an inverted index, written and searched as the service's learned impacts.

A word's score depends on no other word of a query, so all are known before any query. An index can hold only some: a word's median
score, which it gives to a document that has nothing like it, is subtracted, and a document keeps its largest rises.

N   documents       W   scored terms
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.postings import ImpactIndex, ImpactWriter, pack_codes
from research.ndrm.words import TermCollection

__all__ = ["search_impacts", "write_impacts"]

LARGEST_CODE, NO_CAUSE = 255, 255
Ranked = list[tuple[NDArray[np.int64], NDArray[np.float32]]]


def write_impacts(
    folder: Path,
    terms: TermCollection,
    wanted: NDArray[np.int64],
    scores: NDArray[np.float32],
    budget: int,
) -> int:
    """Writes the index; returns its number of postings.

    Args:
        folder: created if missing.
        terms: the collection.
        wanted: int64 [W], numbers of the scored terms.
        scores: float32 [W, N]; a constant of a term changes no ranking.
        budget: most terms of a document.
    """
    names = _names(terms)
    order = sorted(range(len(wanted)), key=lambda place: names[int(wanted[place])].encode())
    unit = max(float((scores.max(1) - np.median(scores, axis=1)).max()), 1e-6) / LARGEST_CODE
    codes = np.empty(scores.shape, np.uint8)
    for place, row in enumerate(order):
        rises = np.maximum(scores[row] - np.median(scores[row]), 0.0)
        codes[place] = np.rint(rises / unit)
    with ImpactWriter(folder, [names[int(wanted[row])] for row in order]) as writer:
        for document in codes.T:
            kept = np.flatnonzero(document)
            if len(kept) > budget:  # ties go to the first term
                kept = np.sort(kept[np.argsort(-document[kept].astype(np.int64), kind="stable")[:budget]])
            causes = np.full(len(kept), NO_CAUSE, np.uint8)
            writer.add(kept.tolist(), pack_codes(document[kept], causes).tolist())
        parameters = {"unit": unit, "budget": float(budget)}
        return writer.finish("learned", lambda _words, _rows, values: values, parameters).postings


def search_impacts(folder: Path, terms: TermCollection, k: int = 100) -> Ranked:
    """Rows and scores of the k best documents of each query, by the service's reader."""
    names, index = _names(terms), ImpactIndex.open(folder)
    found = []
    for query in terms.queries:
        scores, rows = index.search([names[int(term)] for term in query if term], k)
        found.append((rows, scores))
    return found


def _names(terms: TermCollection) -> list[str]:
    """Terms by their numbers; the first is empty."""
    return ["", *terms.vocabulary.places]
