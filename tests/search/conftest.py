"""Vectors that lie in clusters, as those of documents do, queries near some of them, and columns of made documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index.columns import Columns, build_columns
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document

Vectors = NDArray[np.float32]
COUNT, DIMENSIONS, QUERIES = 3000, 32, 40


def unit(vectors: NDArray[np.float64]) -> Vectors:
    """Of 16 bits, as an index holds them."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="session")
def vectors() -> Vectors:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((60, DIMENSIONS))
    chosen = centres[generator.integers(60, size=COUNT)]
    return unit(chosen + 0.6 * generator.standard_normal((COUNT, DIMENSIONS)))


@pytest.fixture(scope="session")
def queries(vectors: Vectors) -> Vectors:
    generator = np.random.default_rng(1)
    rows = generator.choice(COUNT, QUERIES, replace=False)
    return unit(vectors[rows] + 0.1 * generator.standard_normal((QUERIES, DIMENSIONS)))


def columns_of(rows: Sequence[Mapping[str, Any]], folder: Path) -> Columns:
    """Columns of documents with this metadata, written into a folder and opened."""
    folder.mkdir(exist_ok=True)
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row, metadata in enumerate(rows):
            writer.add(Document(f"d{row}", {"title": ("bees",)}, dict(metadata)))
    build_columns(DocumentStore(folder / "documents.sqlite"), folder)
    return Columns.open(folder, len(rows))
