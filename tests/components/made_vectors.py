"""Made vectors, built into segments without a build around them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from glow.artifact import FileKey
from glow.index import (
    BaseAndDelta,
    Corpus,
    MergeSource,
    Rows,
    Segment,
    Segments,
)
from glow.index.columns import COLUMNS, build_columns
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.vectors import (
    VECTORS,
    VectorRules,
)
from glow.records import Document

OLD, NEW, DIMENSIONS = 600, 80, 16
HASHES = {"model": "m" * 64, "terms": "t" * 64}
Array = NDArray[np.float32]


def made(folder: Path, count: int, below: str = "", **parameters: Any) -> Segment:
    """A segment in the making, with columns in a folder of their own, as a build has them."""
    columns = folder / "columns-step"
    columns.mkdir(parents=True)
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row in range(count):
            writer.add(Document(f"d{row:04}", {}, {"parity": row % 2}))
    build_columns(DocumentStore(folder / "documents.sqlite"), columns)
    (folder / "step").mkdir()
    given = (below, HASHES, parameters, None, Rows(count))
    segment = Segment("v1", folder / "step", folder, *given, earlier=(columns,))
    return segment.with_reader(COLUMNS, COLUMNS.open(segment))


def opened(segment: Segment) -> Segment:
    return segment.with_reader(VECTORS, VECTORS.open(segment))


def verified(segment: Segment) -> Segment:
    """The same with its files in a manifest."""
    files = {path.name: (FileKey.of(path), "") for path in segment.folder.iterdir()}
    return replace(segment, files=files)


def corpus_of(segment: Segment, vectors: Array, **more: Any) -> Corpus:
    hashed = {name: SimpleNamespace(hash=HASHES[name]) for name in HASHES}
    encoded = SimpleNamespace(vectors=lambda: vectors)
    given = {"spread": None, "notes": segment.root / "import", "advance": lambda _: None}
    return cast(Corpus, SimpleNamespace(made=segment, encoded=encoded, **hashed, **(given | more)))


def built(folder: Path, vectors: Array, rules: VectorRules, below: str = "", **parameters: Any) -> Segment:
    segment = made(folder, len(vectors), below, **parameters)
    VECTORS.build(corpus_of(segment, vectors), rules)
    return opened(segment)


def rules_of(kind: Any, **more: Any) -> VectorRules:
    return VectorRules(index=kind, dimensions=DIMENSIONS, **more)


def joined(base: Segment, delta: Segment, gone: NDArray[np.int64]) -> BaseAndDelta[Any]:
    order = np.random.default_rng(2).permutation(OLD + NEW).astype(np.uint32)
    segments = Segments(base.rows.documents, delta.rows.documents, gone)
    return BaseAndDelta("v1", base[VECTORS], delta[VECTORS], segments, gone, order)


def kept(base: Segment, delta: Segment, gone: NDArray[np.int64]) -> list[MergeSource]:
    live = np.ones(base.rows.documents, np.bool_)
    live[gone] = False
    return [MergeSource(base, live), MergeSource(delta, np.ones(delta.rows.documents, np.bool_))]
