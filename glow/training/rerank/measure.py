"""Re-ranks first-stage candidates by the cross-encoder's score, and by both scores together.

c   candidates of a query
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from glow.evaluation import Run, evaluate
from glow.index.token_embeddings import StateBits, decode_states, encode_states
from glow.nn import CrossEncoder, Side
from glow.records import Hit, Qrel
from glow.text import WeightedTokens, batches_by_length, pad
from glow.training.rerank.candidates import Candidates, Texts

__all__ = ["RerankScores", "measure_reranking", "read_side", "score_candidates"]

BATCH_TOKENS = 4096
Scores = Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class RerankScores:
    """Candidates and their cross-encoder scores, float32 [c] per query."""

    candidates: Candidates
    scores: Scores

    def run(self, mix: float | None) -> Run:
        """Candidates by score + mix · first-stage score; None: by the first-stage score alone."""
        found: dict[str, list[Hit]] = {}
        collection = self.candidates.collection
        parts = zip(
            collection.query_ids, self.candidates.rows, self.candidates.scores, self.scores, strict=True
        )
        for identifier, rows, first, own in parts:
            scores = first if mix is None else own + np.float32(mix) * first
            order = np.argsort(-scores, kind="stable")
            ids = [collection.documents[row].id for row in rows[order].tolist()]
            found[identifier] = [
                Hit(id_, float(score)) for id_, score in zip(ids, scores[order], strict=True)
            ]
        return found


def read_side(sequences: Sequence[WeightedTokens], pad_id: int, device: torch.device) -> list[torch.Tensor]:
    """Arguments of `CrossEncoder.read_document` for texts; a query's are these without the third."""
    batch = pad(sequences, pad_id)
    arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
    return [torch.from_numpy(array).to(device) for array in arrays]


def score_candidates(
    model: CrossEncoder,
    texts: Texts,
    candidates: Candidates,
    pad_id: int,
    precision: str = "fp32",
    bits: StateBits | None = None,
) -> RerankScores:
    """Scores every candidate of every query; encodes each document once for all queries.

    Args:
        model: the model, which is set to evaluation mode.
        texts: texts of the collection.
        candidates: candidates of the collection's queries.
        pad_id: id of [PAD].
        precision: `bf16` autocast, or `fp32`.
        bits: precision of stored numbers, as in `glow.index.token_embeddings`; None: full. Needs a compressor.
    """
    device = model.head.weight.device
    model.eval()
    wanted = sorted({row for rows in candidates.rows for row in rows.tolist()})
    kept: dict[int, torch.Tensor] = {}
    scores: list[NDArray[np.float32]] = []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=precision != "fp32"):
        tokens = [texts.document(row) for row in wanted]
        for places in batches_by_length([len(one) for one in tokens], BATCH_TOKENS):
            ids, mask, fields, _ = read_side([tokens[place] for place in places], pad_id, device)
            stored = _kept(model.stored(ids, mask, fields), bits)
            kept |= {
                wanted[place]: row[: len(tokens[place])] for place, row in zip(places, stored, strict=True)
            }
        for number, rows in enumerate(candidates.rows):
            ids, mask, _, weights = read_side([texts.query(number)], pad_id, device)
            scores.append(
                _score(model, model.read_query(ids, mask, weights), rows.tolist(), kept, texts, pad_id)
            )
    return RerankScores(candidates, scores)


def _kept(stored: torch.Tensor, bits: StateBits | None) -> torch.Tensor:
    """Token embeddings after storage with this number of bits, float [B, Ld, e]."""
    if bits is None:
        return stored
    flat = stored.float().cpu().numpy().reshape(-1, stored.shape[-1])
    found = decode_states(*encode_states(flat, bits), stored.shape[-1], bits)
    return torch.from_numpy(found).reshape(stored.shape).to(stored.device)


def _score(
    model: CrossEncoder,
    query: Side,
    rows: Sequence[int],
    kept: dict[int, torch.Tensor],
    texts: Texts,
    pad_id: int,
) -> NDArray[np.float32]:
    """Scores one query's candidates in batches of similar length."""
    found = np.empty(len(rows), np.float32)
    for places in batches_by_length([len(kept[row]) for row in rows], BATCH_TOKENS):
        documents = [rows[place] for place in places]
        _, mask, _, weights = read_side(
            [texts.document(row) for row in documents], pad_id, query.states.device
        )
        states = torch.nn.utils.rnn.pad_sequence([kept[row] for row in documents], batch_first=True)
        found[places] = model.score(query, model.restore(states, mask, weights)).float().cpu().numpy()
    return found


def measure_reranking(
    scores: RerankScores,
    qrels: Sequence[Qrel],
    mixes: Sequence[float | None],
    measures: Sequence[str] = ("RR@10", "nDCG@10"),
    rel: int = 1,
) -> dict[str, dict[str, float]]:
    """Measures the rankings of candidates.

    Args:
        scores: scores of a collection's candidates.
        qrels: its relevance judgments.
        mixes: factors of the first-stage score; None: that score alone.
        measures, rel: as `glow.evaluation.evaluate`.

    Returns:
        Mix (`first` for None) -> measure -> mean over the judged queries.
    """
    return {
        "first" if mix is None else f"{mix:g}": dict(
            evaluate(scores.run(mix), qrels, list(measures), rel).means
        )
        for mix in mixes
    }
