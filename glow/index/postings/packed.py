"""Packs plain lists one by one: BM25's impacts in 8 bits, rows in as few bits as they need.

p   postings        v   words
"""

from pathlib import Path

import numpy as np

from glow.index.postings.format import (
    IMPACTS_HEADER,
    MAXIMA_FILE,
    MINIMA_FILE,
    PACKED_FILE,
    PLACES_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    WIDTHS_FILE,
    ImpactHeader,
)
from glow.index.postings.packing import LARGEST_CODE, pack_postings, packed_sizes, width_of
from glow.storage import map_array, new_array

__all__ = ["PACKED_FROM", "pack_lists"]

PACKED_FROM = 4_000_000
"""Number of documents from which `auto` packs lists: docs/results/scale.md."""


def pack_lists(folder: Path, header: ImpactHeader) -> ImpactHeader:
    """Packs a newly written index and removes its plain arrays.

    An impact becomes a code from 0 to 255, on a linear scale from its word's smallest to its largest.

    Args:
        folder: of the index.
        header: its header.

    Returns:
        The header of the packed index, which is also written.

    Raises:
        OSError: if the disk is full.
    """
    starts = map_array(folder / STARTS_FILE, np.int64, header.words + 1)
    maxima = map_array(folder / MAXIMA_FILE, np.float32, header.words)
    rows = map_array(folder / ROWS_FILE, np.uint32, header.postings)
    impacts = map_array(folder / VALUES_FILE, np.float32, header.postings)
    counts = np.diff(starts)
    minima = np.minimum.reduceat(impacts, starts[:-1]) if len(counts) else np.empty(0, np.float32)
    ranges = maxima - minima
    scales = np.divide(LARGEST_CODE, ranges, out=np.zeros_like(ranges), where=ranges > 0)
    different, which = np.unique(counts, return_inverse=True)
    widths = np.array([width_of(count, header.documents) for count in different.tolist()], np.uint8)[which]
    sizes, _ = packed_sizes(counts, widths, header.documents)
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    data = new_array(folder / PACKED_FILE, np.uint8, int(places[-1]))
    for word, (start, width) in enumerate(zip(starts[:-1].tolist(), widths.tolist(), strict=True)):
        held = slice(start, start + int(counts[word]))
        codes = np.rint((impacts[held] - minima[word]) * scales[word]).astype(np.uint8)
        packed = pack_postings(rows[held], codes, header.documents, width)
        data[places[word] : places[word + 1]] = packed
    np.save(folder / MINIMA_FILE, minima, allow_pickle=False)
    np.save(folder / WIDTHS_FILE, widths, allow_pickle=False)
    np.save(folder / PLACES_FILE, places, allow_pickle=False)
    del rows, impacts, data
    (folder / ROWS_FILE).unlink()
    (folder / VALUES_FILE).unlink()
    packed_header = header.model_copy(update={"layout": "packed"})
    packed_header.save(folder / IMPACTS_HEADER)
    return packed_header
