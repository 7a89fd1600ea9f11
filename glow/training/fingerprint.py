"""What the saved state of a run belongs to: a configuration, training data and the weights at the start, as a hash."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from torch import nn

from glow.negatives import documents_hash
from glow.records import Document
from glow.training.config import TrainConfig
from glow.training.data import Collection, MsMarcoDocuments

__all__ = ["collection_hash", "fingerprint", "parameters_hash", "parts_hash"]


def fingerprint(
    config: TrainConfig, processes: int, collections: Sequence[Collection], origins: Sequence[str]
) -> str:
    """SHA-256, as hexadecimal digits, of all that decides a run's weights; where its files lie does not matter.

    Args:
        config: of the run.
        processes: that share its batches.
        collections: what it trains on: documents, queries, judgements, negatives.
        origins: hashes of the rest, such as the weights at the start.
    """
    parts = [
        config.model_dump_json(by_alias=True),
        str(processes),
        *origins,
        *map(collection_hash, collections),
    ]
    return parts_hash(parts)


def parts_hash(parts: Sequence[str]) -> str:
    """SHA-256 of texts in their order, as hexadecimal digits."""
    return _sha256(json.dumps(parts).encode())


def collection_hash(collection: Collection) -> str:
    """SHA-256 of a collection's documents, queries, judgements and negatives, as hexadecimal digits."""
    parts = [
        _documents_hash(collection.documents),
        _sha256(json.dumps(list(collection.queries)).encode()),
        _sha256(collection.pairs.tobytes()),
        _negatives_hash(collection.negatives),
    ]
    return parts_hash(parts)


def parameters_hash(module: nn.Module) -> str:
    """SHA-256 over names and values of a module's parameters, as hexadecimal digits."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def _documents_hash(documents: Sequence[Document]) -> str:
    return documents.hash if isinstance(documents, MsMarcoDocuments) else documents_hash(documents)


def _negatives_hash(negatives: Sequence[tuple[int, ...]] | None) -> str:
    """Of the numbers themselves: two readings of the same files are two objects."""
    if negatives is None:
        return ""
    counts = np.fromiter((len(rows) for rows in negatives), np.int64, len(negatives))
    numbers = np.fromiter((number for rows in negatives for number in rows), np.int64, int(counts.sum()))
    return _sha256(counts.tobytes() + numbers.tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
