"""Merges the passages of several segments into one map, without splitting documents again.

n   documents       p   passages
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glow.index.passages.map import ARRAYS, PASSAGES_FOLDER, PASSAGES_HEADER, PassageMap
from glow.index.segment import Key, MergeSource

__all__ = ["merge_passages"]


def merge_passages(key: Key[PassageMap, PassageMap], kept: Sequence[MergeSource], folder: Path) -> None:
    """Writes `passages/` from segments that were split by the same rules.

    It is unknown which documents lost text to the limit, so the new header's number is an upper bound.

    Args:
        key: of the component.
        kept: at least one segment.
        folder: of an unfinished version or segment.
    """
    maps = [each.segment[key] for each in kept]
    sizes = [np.diff(passages.first)[each.live] for passages, each in zip(maps, kept, strict=True)]
    rows = [each.rows("vector") for each in kept]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes), dtype=np.int64)])
    documents = len(first) - 1
    arrays = {
        "documents": np.repeat(np.arange(documents), np.diff(first)),
        "starts": np.concatenate([passages.starts[row] for passages, row in zip(maps, rows, strict=True)]),
        "ends": np.concatenate([passages.ends[row] for passages, row in zip(maps, rows, strict=True)]),
        "first": first,
    }
    target = folder / PASSAGES_FOLDER
    target.mkdir()
    for name in ARRAYS:
        np.save(target / f"{name}.npy", arrays[name].astype(np.uint32), allow_pickle=False)
    header = maps[0].header.model_copy(
        update={
            "documents": documents,
            "passages": int(first[-1]),
            "left_out": min(documents, sum(passages.header.left_out for passages in maps)),
        }
    )
    header.save(target / PASSAGES_HEADER)
