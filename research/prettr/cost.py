"""Table 5's shape: what re-ranking takes by layers apart, on one thread, and what a token's stored numbers take."""

import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from glow.index.token_embeddings import code_bytes
from glow.nn import CrossConfig, CrossEncoder

__all__ = ["stored_bytes", "times"]


def times(config: CrossConfig, documents: int) -> dict[str, Any]:
    """Median CPU ms of a query's encoding, its candidates' decompression, and the join, with random weights.

    Args:
        config: the shape; the longest queries and documents are read. Late interaction is timed if it has that.
        documents: candidates.
    """
    torch.manual_seed(0)
    model, late = CrossEncoder(config).eval(), {}
    ids, mask, ones = _tokens(1, config.query_tokens)
    with torch.inference_mode():
        query = model.read_query(ids, mask, ones)
        parts = {"query": _ms(lambda: model.read_query(ids, mask, ones))}
        ids, mask, ones = _tokens(documents, config.document_tokens)
        stored = model.stored(ids, mask, torch.zeros_like(ids))
        found = model.restore(stored, mask, ones)
        parts["decompress"] = _ms(lambda: model.restore(stored, mask, ones))
        if model.late is not None:
            late = {"late interaction": _ms(lambda: model.late_score(query, found))}
            model.late = None  # the paper's score has none
        parts["join"] = _ms(lambda: model.score(query, found))
    return {"l": config.split} | parts | {"total": round(sum(parts.values()), 1)} | late


def stored_bytes(size: int) -> dict[str, int]:
    """Bytes of a token's numbers by their bits, scales included; 32 bits are the numbers themselves."""
    coded = {str(bits): 2 * (bits < 16) + code_bytes(size, bits) for bits in (16, 8, 4)}
    return {"32": 4 * size} | coded


def _tokens(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.randint(5, 1000, (rows, length))
    return ids, torch.ones_like(ids), torch.ones(rows, length)


def _ms(work: Callable[[], Any]) -> float:
    # The CPU's time, as other programs do not change that.
    values = timeit.repeat(work, timer=time.process_time, number=1, repeat=3)
    return round(1e3 * float(np.median(values)), 1)
