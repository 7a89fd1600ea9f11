"""Writes the map of passages of an index version, in memory that does not grow with the corpus."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from glow.errors import BuildError
from glow.index.passages.map import ARRAYS, PASSAGES_FOLDER, PASSAGES_HEADER, PassageMap, PassagesHeader
from glow.records import Document
from glow.text import PassageCutter

__all__ = ["build_passages"]

RAW_SUFFIX = ".u32"
MAX_ROWS = 2**32 - 1


def build_passages(
    documents: Iterable[Document],
    cutter: PassageCutter,
    folder: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> PassageMap:
    """Splits documents and writes the positions.

    Args:
        documents: in row order.
        cutter: splits them.
        folder: of the version; `passages/` is created in it.
        advance: called with the number of finished documents.

    Returns:
        The map, opened from its files.

    Raises:
        BuildError: if the number of passages, or the length of a body, exceeds 32 bits.
    """
    target = folder / PASSAGES_FOLDER
    target.mkdir()
    count = rows = left_out = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((target / (name + RAW_SUFFIX)).open("wb")) for name in ARRAYS}
        for document in documents:
            cut = cutter.cut(document)
            spans = np.array(cut.spans, np.int64)
            if rows + len(spans) > MAX_ROWS or spans[-1, 1] > MAX_ROWS:
                raise BuildError(
                    f"document row {count}: passages exceed what 32 bits count; split the corpus"
                )
            values = (np.full(len(spans), count), spans[:, 0], spans[:, 1], np.array([rows]))
            for name, value in zip(ARRAYS, values, strict=True):
                files[name].write(value.astype(np.uint32).tobytes())
            rows += len(spans)
            count += 1
            left_out += cut.left_out
            advance(1)
        files["first"].write(np.array([rows], np.uint32).tobytes())
    for name in ARRAYS:
        _to_npy(target / (name + RAW_SUFFIX), target / f"{name}.npy")
    header = PassagesHeader(
        field=cutter.field,
        limit=cutter.options.limit,
        documents=count,
        passages=rows,
        left_out=left_out,
    )
    header.save(target / PASSAGES_HEADER)
    return PassageMap.open(target)


def _to_npy(raw: Path, path: Path) -> None:
    """Adds NumPy's header to a file of plain numbers."""
    size = raw.stat().st_size
    np.save(path, np.memmap(raw, np.uint32, "r") if size else np.empty(0, np.uint32), allow_pickle=False)
    raw.unlink()
