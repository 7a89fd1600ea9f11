"""Measures development sets during training, for early stopping and the plots of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from glow.text import Preprocessor, WeightedTokens
from glow.training.config import Side
from glow.training.data import Collection
from glow.training.encode import vectors
from glow.training.objective import Targets
from glow.training.run import Moment, WatchConfig
from glow.training.tower_loss import TowerLoss

__all__ = ["Watch", "WatchedTask", "reciprocal_ranks"]

DEPTH = 10
SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True, slots=True, eq=False)
class WatchedTask:
    """Queries and documents of one collection, preprocessed.

    Attributes:
        name: name of the collection.
        queries, documents: weighted tokens.
        relevant: query -> positions of its relevant documents here.
        numbers: int64, numbers of the queries and of the documents in the collection.
    """

    name: str
    queries: Sequence[WeightedTokens]
    documents: Sequence[WeightedTokens]
    relevant: Sequence[frozenset[int]]
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]]


class Watch:
    """Measures RR@10 on a fixed sample of collections.

    Args:
        collections: collections with the queries of a development split.
        preprocessor: the run's preprocessor.
        config: sizes of the sample.
        seed: seed of the sample.
        loss: loss of the trained towers.
        targets: a teacher's vectors of each collection, which replace the other tower's if one is trained alone.
    """

    def __init__(
        self,
        collections: Sequence[Collection],
        preprocessor: Preprocessor,
        config: WatchConfig,
        seed: int,
        loss: TowerLoss,
        targets: Sequence[Targets] = (),
    ) -> None:
        self.tasks = [_task(collection, preprocessor, config, seed) for collection in collections]
        self._pad_id, self._loss, self._targets = preprocessor.pieces.pad_id, loss, targets

    def measure(self, moment: Moment) -> dict[str, float]:
        """Mean RR@10 of each collection, by name."""
        return {
            task.name: float(self._ranks(number, task, moment).mean())
            for number, task in enumerate(self.tasks)
        }

    def _ranks(self, number: int, task: WatchedTask, moment: Moment) -> NDArray[np.float64]:
        queries, documents = (self._vectors(number, task, side, moment) for side in SIDES)
        return reciprocal_ranks(queries @ documents.T, task.relevant)

    def _vectors(self, number: int, task: WatchedTask, side: Side, moment: Moment) -> NDArray[np.float32]:
        place = SIDES.index(side)
        if self._targets and side not in self._loss.config.sides:
            aims = (self._targets[number].queries, self._targets[number].documents)[place]
            assert aims is not None  # noqa: S101 - `list_other = "teacher"` reads both sides
            wanted = torch.from_numpy(aims[task.numbers[place]]).to(moment.device)
            with torch.inference_mode():
                return self._loss.objective.mapped(wanted).cpu().numpy()
        tower = (self._loss.towers.query, self._loss.towers.document)[place]
        texts = (task.queries, task.documents)[place]
        return vectors(tower, texts, self._pad_id, moment.precision, str(moment.device))


def reciprocal_ranks(
    scores: NDArray[np.float32], relevant: Sequence[frozenset[int]], depth: int = DEPTH
) -> NDArray[np.float64]:
    """Reciprocal rank of each query's first relevant document; 0 beyond `depth`.

    Args:
        scores: float32 [queries, documents].
        relevant: query -> columns of its relevant documents.
        depth: number of ranks that count.

    Returns:
        float64 [queries].
    """
    depth = min(depth, scores.shape[1])
    nearest = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    order = np.take_along_axis(nearest, np.argsort(-np.take_along_axis(scores, nearest, 1), 1), 1)
    ranks = np.zeros(len(scores))
    for row, columns in enumerate(order.tolist()):
        rank = next((rank for rank, column in enumerate(columns, 1) if column in relevant[row]), 0)
        ranks[row] = 1.0 / rank if rank else 0.0
    return ranks


def _task(collection: Collection, preprocessor: Preprocessor, config: WatchConfig, seed: int) -> WatchedTask:
    random = np.random.default_rng(seed)
    queries = list(range(len(collection.queries)))
    if 0 < config.queries < len(queries):
        queries = sorted(random.choice(len(queries), config.queries, replace=False).tolist())
    needed = {number for query in queries for number in collection.relevant[query]}
    others = np.setdiff1d(np.arange(len(collection.documents)), np.array(sorted(needed)))
    if 0 < config.documents < len(others):
        others = random.choice(others, config.documents, replace=False)
    kept = sorted(needed | set(others.tolist()))
    position = {number: row for row, number in enumerate(kept)}
    return WatchedTask(
        collection.name,
        [preprocessor.query(collection.queries[query]) for query in queries],
        [preprocessor.document(collection.documents[number]) for number in kept],
        [frozenset(position[number] for number in collection.relevant[query]) for query in queries],
        (np.array(queries, np.int64), np.array(kept, np.int64)),
    )
