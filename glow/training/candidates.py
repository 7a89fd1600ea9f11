"""First-stage hits of queries: batches for training a re-ranker, and their scores and measures by one.

c   candidates of a query       B   queries of a batch      N   negatives per query
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.evaluation import Run, evaluate, read_run
from glow.nn import CrossEncoder, Side
from glow.records import Hit, Qrel
from glow.text import Preprocessor, WeightedTokens, batches_by_length, pad
from glow.training.data import Collection, Epochs, Rows

BATCH_TOKENS = 4096
Scores = Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """One collection with the first-stage ranking of each query."""

    collection: Collection
    rows: Sequence[NDArray[np.int64]]  # query number -> [c], documents, best first
    scores: Sequence[NDArray[np.float32]]  # query number -> [c], first-stage scores


def read_candidates(run: Path, collection: Collection, depth: int) -> Candidates:
    """Reads the first `depth` hits of each query of a collection from a TREC run that was made from it."""
    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    ranked = read_run(run)
    if not any(identifier in ranked for identifier in collection.query_ids):
        raise MismatchError(
            f"{run.name} holds no query of {collection.name}; make it from that directory and split"
        )
    rows, scores = [], []
    for identifier in collection.query_ids:
        hits = ranked.get(identifier, [])[:depth]
        missing = next((hit.document_id for hit in hits if hit.document_id not in numbers), None)
        if missing is not None:
            raise MismatchError(
                f"{run.name} ranks document {missing!r}, which {collection.name} does not have"
            )
        rows.append(np.array([numbers[hit.document_id] for hit in hits], np.int64))
        scores.append(np.array([hit.score for hit in hits], np.float32))
    return Candidates(collection, rows, scores)


class Texts:
    """A collection's texts for the cross-encoder, each preprocessed once."""

    def __init__(self, collection: Collection, preprocessor: Preprocessor) -> None:
        self._collection, self._preprocessor = collection, preprocessor
        self._queries: dict[int, WeightedTokens] = {}
        self._documents: dict[int, WeightedTokens] = {}

    def query(self, number: int) -> WeightedTokens:
        if number not in self._queries:
            self._queries[number] = self._preprocessor.query(self._collection.queries[number])
        return self._queries[number]

    def document(self, number: int) -> WeightedTokens:
        """A document's tokens without [CLS], which belongs to the query."""
        if number not in self._documents:
            self._documents[number] = self._preprocessor.document(
                self._collection.documents[number]
            ).without_first()
        return self._documents[number]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateBatch:
    """B queries of one collection, each with its relevant document and then N others."""

    collection: int  # its number
    queries: NDArray[np.int64]  # [B]
    documents: NDArray[np.int64]  # [B, 1 + N]
    scores: NDArray[np.float32]  # [B, 1 + N], of the first stage


class CandidateBatches:
    """Batches of B = `batch_size` training queries whose candidates include a relevant document and N = `negatives` others.

    Their order depends only on seed and epoch, so that a run can resume. `max_steps` 0: no limit.
    """

    def __init__(
        self,
        candidates: Sequence[Candidates],
        batch_size: int,
        negatives: int,
        seed: int,
        epochs: int = 1,
        max_steps: int = 0,
    ) -> None:
        self.candidates, self.batch_size, self.negatives = candidates, batch_size, negatives
        self._usable = [self._usable_of(found) for found in candidates]
        if not any(len(usable) for usable in self._usable):
            raise MismatchError(
                f"no query has a relevant document and {negatives} others among its candidates; give runs of the "
                "training split, or search deeper"
            )
        # An incomplete last batch of a collection is left out.
        count = sum(len(usable) // batch_size for usable in self._usable)
        self._epochs = Epochs(count, epochs, max_steps, seed, self._plan)
        self.steps = self._epochs.steps

    def _usable_of(self, found: Candidates) -> NDArray[np.int64]:
        usable = []
        for number, relevant in enumerate(found.collection.relevant):
            held = np.isin(found.rows[number], list(relevant))
            if held.any() and (~held).sum() >= self.negatives:
                usable.append(number)
        return np.array(usable, np.int64)

    def batch(self, step: int, process: int, processes: int) -> CandidateBatch:
        """A batch of one collection, in random order; as `glow.training.run.Data`."""
        place, queries, drawn = self._epochs.turn(step, process, processes)
        picked = [self._pick(self.candidates[place], query, drawn) for query in queries.tolist()]
        rows, scores = (np.stack(each) for each in zip(*picked, strict=True))
        return CandidateBatch(place, queries, rows, scores)

    def _plan(self, random: np.random.Generator) -> list[Rows]:
        batches = []
        for place, usable in enumerate(self._usable):
            order = random.permutation(usable)
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                batches.append((place, order[start : start + self.batch_size]))
        return batches

    def _pick(
        self, found: Candidates, query: int, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """A relevant candidate and N others, drawn uniformly."""
        rows, scores = found.rows[query], found.scores[query]
        held = np.isin(rows, list(found.collection.relevant[query]))
        places = [
            random.choice(np.flatnonzero(held)),
            *random.choice(np.flatnonzero(~held), self.negatives, False),
        ]
        return rows[places], scores[places]


@dataclass(frozen=True, slots=True, eq=False)
class RerankScores:
    """Candidates and their cross-encoder scores, float32 [c] per query."""

    candidates: Candidates
    scores: Scores

    def run(self, mix: float | None) -> Run:
        """Candidates by score + mix · first-stage score; None: by the first-stage score alone."""
        hits: dict[str, list[Hit]] = {}
        collection = self.candidates.collection
        parts = zip(
            collection.query_ids, self.candidates.rows, self.candidates.scores, self.scores, strict=True
        )
        for identifier, rows, first, own in parts:
            scores = first if mix is None else own + np.float32(mix) * first
            order = np.argsort(-scores, kind="stable")
            ids = [collection.documents[row].id for row in rows[order].tolist()]
            hits[identifier] = [Hit(id_, float(score)) for id_, score in zip(ids, scores[order], strict=True)]
        return hits


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
) -> RerankScores:
    """Scores every candidate of every query by a model, set to evaluation mode; encodes each document once for all queries.

    `precision` is `bf16` (autocast) or `fp32`.
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
            coded = model.stored(ids, mask, fields)
            kept |= {
                wanted[place]: row[: len(tokens[place])] for place, row in zip(places, coded, strict=True)
            }
        for number, rows in enumerate(candidates.rows):
            ids, mask, _, weights = read_side([texts.query(number)], pad_id, device)
            scores.append(
                _score(model, model.read_query(ids, mask, weights), rows.tolist(), kept, texts, pad_id)
            )
    return RerankScores(candidates, scores)


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
    """Mix (`first` for None) -> measure -> mean over the judged queries of the rankings of candidates.

    `mixes` are factors of the first-stage score, None for that score alone; `measures` and `rel` as in `glow.evaluation.evaluate`.
    """
    return {
        "first" if mix is None else f"{mix:g}": dict(
            evaluate(scores.run(mix), qrels, list(measures), rel).means
        )
        for mix in mixes
    }
