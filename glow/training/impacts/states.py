"""Batches of learned impacts: queries of one collection, with relevant documents and other first-stage hits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.training.impacts.collection import ImpactsCollection
from glow.training.impacts.config import ImpactsConfig

__all__ = ["StateBatch", "StateBatches"]


@dataclass(frozen=True, slots=True, eq=False)
class StateBatch:
    """A batch of queries from one collection.

    Attributes:
        queries: int64 [B].
        documents: int64 [N], distinct.
        relevant: int64 [B], the position of each query's relevant document.
        drawn: words of the collection that the penalty includes in addition to the queries' words.
    """

    collection: ImpactsCollection
    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    relevant: NDArray[np.int64]
    drawn: Sequence[str]


class StateBatches:
    """Draws batches; implements `glow.training.run.Data`.

    Args:
        config: the run's configuration.
        collections: encoded collections.
    """

    def __init__(self, config: ImpactsConfig, collections: Sequence[ImpactsCollection]) -> None:
        self._config, self._collections = config, collections
        sizes = np.array([len(each.words) for each in collections], np.float64) ** config.optimizer.balance
        self._shares = sizes / sizes.sum()

    def steps(self, processes: int) -> int:
        """The configured number of steps."""
        return self._config.optimizer.steps

    def batch(self, step: int, process: int, processes: int) -> StateBatch:
        """The batch of a step and process, which depends only on these and the seed."""
        random = np.random.default_rng([self._config.seed, step * processes + process])
        collection = self._collections[random.choice(len(self._collections), p=self._shares)]
        found, objective = collection.found, self._config.objective
        count = min(self._config.optimizer.batch_size, len(collection.words))
        queries = random.choice(len(collection.words), count, replace=False)
        relevant = [int(random.choice(sorted(found.collection.relevant[query]))) for query in queries]
        others: list[int] = []
        for query in queries.tolist():
            rows = found.rows[query][: objective.depth]
            rows = rows[~np.isin(rows, list(found.collection.relevant[query]))]
            others += random.choice(rows, min(objective.negatives, len(rows)), replace=False).tolist()
        documents = list(dict.fromkeys(relevant + others))
        places = {row: place for place, row in enumerate(documents)}
        own = np.array([places[row] for row in relevant], np.int64)
        vocabulary, likely = collection.vocabulary
        wanted = objective.vocabulary if vocabulary else 0
        drawn = random.choice(len(vocabulary), wanted, p=likely) if wanted else ()
        words = [vocabulary[int(place)] for place in drawn]
        return StateBatch(collection, queries, np.array(documents, np.int64), own, words)
