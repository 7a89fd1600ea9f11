"""Hashes of training data, which identify the data of a run."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from glow.negatives import documents_hash
from glow.training.data import Collection
from glow.training.run import parts_hash

__all__ = ["collection_hash"]


def collection_hash(collection: Collection) -> str:
    """SHA-256 of a collection's documents, queries, judgments and negatives, in hexadecimal digits."""
    parts = [
        documents_hash(collection.documents),
        _sha256(json.dumps(list(collection.queries)).encode()),
        _sha256(collection.pairs.tobytes()),
        _negatives_hash(collection.negatives),
    ]
    return parts_hash(parts)


def _negatives_hash(negatives: Sequence[tuple[int, ...]] | None) -> str:
    """Hashes the numbers, because two readings of the same files are two objects."""
    if negatives is None:
        return ""
    counts = np.fromiter((len(rows) for rows in negatives), np.int64, len(negatives))
    numbers = np.fromiter((number for rows in negatives for number in rows), np.int64, int(counts.sum()))
    return _sha256(counts.tobytes() + numbers.tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
