"""The loss of both towers over a batch of pairs, for the training loop."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from glow.nn import Tower, TwoTowers
from glow.text import WeightedTokens
from glow.training.checkpoint import TEACHER_MAP
from glow.training.config import Side, TrainConfig
from glow.training.data import PairBatch, PairBatches
from glow.training.objective import Objective, Targets
from glow.training.run import Loss, Moment
from glow.training.step import CachedBatch, Encoding, encode

__all__ = ["TowerLoss"]


class TowerLoss(nn.Module):
    """Both towers and their objective.

    Args:
        config: the run's configuration, which decides the trainable parameters.
        towers: the towers to train.
        batches: resolves the numbers in a batch.
        targets: teacher vectors of every collection, if the objective uses a teacher.
        init: the initial weights, which may include the map of a teacher's vectors.
    """

    def __init__(
        self,
        config: TrainConfig,
        towers: TwoTowers,
        batches: PairBatches,
        targets: Sequence[Targets] = (),
        init: Path | None = None,
    ) -> None:
        super().__init__()
        self.config, self._batches, self._targets = config, batches, targets
        known = [
            aims for target in targets for aims in (target.queries, target.documents) if aims is not None
        ]
        torch.manual_seed(config.seed)
        self.towers = towers
        self.objective = Objective(config.objective, towers.config.hidden, known[0].width if known else 0)
        if self.objective.map is not None and init is not None and (init / TEACHER_MAP).is_file():
            known_map = load_file(init / TEACHER_MAP)
            if known_map["weight"].shape == self.objective.map.weight.shape:
                self.objective.map.load_state_dict(known_map)
        learns = config.towers.learns
        for side, tower in (("query", towers.query), ("document", towers.document)):
            tower.requires_grad_(learns in ("both", side))
        towers.words.weight.requires_grad_(config.towers.train_words)

    def forward(self, batch: PairBatch, moment: Moment) -> Loss:
        """The loss of a batch; with gradient caching, its second pass follows later."""
        encoding = self._encoding(moment)
        sides = [self._side(side, batch) for side in self.config.sides]
        later = []
        if encoding.chunk_size:
            cached = [CachedBatch(encoding, tower, sequences) for tower, sequences in sides]
            vectors, later = [side.vectors for side in cached], [side.backward for side in cached]
        else:
            vectors = [encode(encoding, tower, sequences) for tower, sequences in sides]
        value, figures = self._loss(vectors, batch, moment)
        return Loss(value, len(batch.queries), figures, later)

    def _side(self, side: Side, batch: PairBatch) -> tuple[Tower, list[WeightedTokens]]:
        """A tower and its texts of a batch."""
        if side == "query":
            return self.towers.query, self._batches.queries_of(batch)
        documents = self._batches.documents[batch.collection]
        return self.towers.document, [documents[row] for row in batch.documents]

    def _loss(
        self, vectors: Sequence[Tensor], batch: PairBatch, moment: Moment
    ) -> tuple[Tensor, dict[str, float]]:
        targets = self._targets[batch.collection] if self._targets else Targets(None, None)
        wanted = [target.to(moment.device) for target in targets.of(batch)]
        if len(vectors) == 1:
            are_queries = self.config.sides == ("query",)
            if len(wanted) == 2 and not are_queries:
                wanted.reverse()
            return self.objective.alone(vectors[0], *wanted, are_queries=are_queries)
        relevant = torch.from_numpy(batch.relevant).to(moment.device)
        lexical = torch.from_numpy(targets.lexical(batch)).to(moment.device) if targets.lexical else None
        found: tuple[Tensor, dict[str, float]] = self.objective(*vectors, relevant, wanted, lexical)
        return found

    def _encoding(self, moment: Moment) -> Encoding:
        options = self.config.optimizer
        return Encoding(
            self._batches.pad_id,
            moment.device,
            moment.autocast,
            options.chunk_size,
        )
