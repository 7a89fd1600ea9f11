"""The loop that trains the head of learned impacts: resumable, one process, on the CPU, whose minutes it takes.

B   queries of a batch      N   documents of a batch        W   different words of the queries
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glow.nn import TermImpacts
from glow.training.impacts.collection import ImpactsCollection, WordVectors
from glow.training.impacts.config import ImpactsConfig
from glow.training.run import Position, Progress, load_state, save_state

__all__ = ["ImpactsTrainer", "ranknet_loss"]

_LAST_RATE = 0.02
_PENALTY_WARMUP = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Queries of one collection.

    Attributes:
        queries: int64 [B].
        documents: int64 [N], each once.
        relevant: int64 [B], the place of each query's relevant document.
    """

    collection: ImpactsCollection
    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    relevant: NDArray[np.int64]


def ranknet_loss(scores: Tensor, grades: Tensor) -> Tensor:
    """-ln(sigmoid(s_i - s_j) + 1e-6), mean over the pairs of a query with grade i above grade j, mean over queries; a scalar.

    Source: Conformer-Kernel with query term independence, section 5.3; the constant is the released code's.

    Args:
        scores, grades: float [B, N]; a query without such a pair does not count.
    """
    above = (grades[:, :, None] > grades[:, None, :]).to(scores.dtype)
    losses = -torch.log(torch.sigmoid(scores[:, :, None] - scores[:, None, :]) + 1e-6) * above
    pairs = above.sum((1, 2))
    return (losses.sum((1, 2))[pairs > 0] / pairs[pairs > 0]).mean()


class ImpactsTrainer:
    """Trains a head in place.

    Args:
        config: the run.
        head: to be trained.
        collections: with their states written.
        words: vectors of every word of their queries and vocabularies.
        folder: where the state is kept.
        fingerprint: of all that decides the run; a state of another is refused.
        on_progress: called after every step.
    """

    def __init__(
        self,
        config: ImpactsConfig,
        head: TermImpacts,
        collections: Sequence[ImpactsCollection],
        words: WordVectors,
        folder: Path,
        fingerprint: str,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.config, self.head, self.collections, self.words = config, head, collections, words
        self.position = Position()
        self._folder, self._fingerprint, self._on_progress = folder, fingerprint, on_progress
        self.optimizer = torch.optim.AdamW(
            head.parameters(), lr=config.optimizer.learning_rate, weight_decay=0.01
        )
        sizes = np.array([len(each.words) for each in collections], np.float64) ** config.optimizer.balance
        self._shares = sizes / sizes.sum()

    def run(self) -> list[float]:
        """Trains to the last step, going on from a saved state; returns the losses of this call's steps.

        Raises:
            MismatchError: if the saved state is of another run.
        """
        self.position = load_state(self._folder, self.head, self.optimizer, self._fingerprint)
        steps, every, start = self.config.optimizer.steps, self.config.checkpoint_steps, time.monotonic()
        losses: list[float] = []
        for step in range(self.position.step, steps):
            losses.append(self._step(step))
            self.position.step = step + 1
            speed = len(losses) * self.config.optimizer.batch_size / (time.monotonic() - start)
            self._on_progress(Progress(step + 1, steps, float(np.mean(losses[-50:])), speed))
            if (step + 1) % every == 0 or step + 1 == steps:
                save_state(self._folder, self.head, self.optimizer, self.position, self._fingerprint)
        return losses

    def _step(self, step: int) -> float:
        options = self.config.optimizer
        # Drawn by the step alone, so that a resumed run draws what the unbroken one would have drawn.
        random = np.random.default_rng([self.config.seed, step])
        rate = min(1.0, (step + 1) / options.warmup) * max(_LAST_RATE, 1.0 - step / options.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate * rate
        ramp = min(1.0, step / (_PENALTY_WARMUP * options.warmup))
        self.optimizer.zero_grad(set_to_none=True)
        loss, penalty = self._losses(self._draw(random), random)
        (loss + self.config.objective.penalty * ramp * penalty).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())

    def _draw(self, random: np.random.Generator) -> _Batch:
        collection = self.collections[random.choice(len(self.collections), p=self._shares)]
        found, objective = collection.found, self.config.objective
        count = min(self.config.optimizer.batch_size, len(collection.words))
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
        return _Batch(collection, queries, np.array(documents, np.int64), own)

    def _losses(self, batch: _Batch, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the relevant documents, and the mean impact of queries' and of other words: two scalars."""
        collection = batch.collection
        asked = [collection.words[query] for query in batch.queries.tolist()]
        words = list(dict.fromkeys(word for query in asked for word in query))
        places = {word: place for place, word in enumerate(words)}
        vocabulary, likely = collection.vocabulary
        count = self.config.objective.vocabulary if vocabulary else 0
        drawn = [int(place) for place in random.choice(len(vocabulary), count, p=likely)] if count else []
        every = words + [vocabulary[place] for place in drawn]
        directions, gains = self.head.words(
            torch.from_numpy(self.words.of(every)), torch.from_numpy(collection.idf(every))
        )
        states, mask = collection.states(batch.documents)
        impacts = self.head(directions, gains, self.head.tokens(states), mask)  # [W + drawn, N]
        counts = torch.zeros(len(asked), len(words))
        for row, query in enumerate(asked):
            for word in query:
                counts[row, places[word]] += 1.0
        bm25 = np.stack([collection.bm25.score(query, batch.documents) for query in asked])
        scores = counts @ impacts[: len(words)] + self.head.bm25_weight * torch.from_numpy(bm25)
        scores = scores.masked_fill(self._also_relevant(batch), -torch.inf)
        loss = functional.cross_entropy(scores, torch.from_numpy(batch.relevant))
        penalty = impacts[: len(words)].mean()
        if len(every) > len(words):
            penalty = penalty + impacts[len(words) :].mean()
        return loss, penalty

    @staticmethod
    def _also_relevant(batch: _Batch) -> Tensor:
        """Documents of the batch that are relevant to a query and not the one it is to find, bool [B, N]."""
        relevant = batch.collection.found.collection.relevant
        masks = np.stack(
            [np.isin(batch.documents, list(relevant[query])) for query in batch.queries.tolist()]
        )
        masks[np.arange(len(masks)), batch.relevant] = False
        return torch.from_numpy(masks)
