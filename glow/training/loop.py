"""The training loop: one step after another over pair batches, resumable, with progress and metrics."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glow.nn.towers import Tower, TwoTowers
from glow.text import WeightedTokens
from glow.text.batch import pad
from glow.training.config import ObjectiveConfig, OptimiserConfig, TrainConfig
from glow.training.data import PairBatch, PairBatches
from glow.training.losses import BceObjective, blocked_negatives, softmax_loss
from glow.training.state import load_state, save_state

__all__ = ["Progress", "Targets", "Trainer", "learning_rate"]

METRICS_FILE = "metrics.jsonl"
METRICS_STEPS = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: step of steps, running mean of the loss, pairs a second since the start."""

    step: int
    steps: int
    loss: float
    pairs_per_second: float


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Teacher vectors of one collection: float32 [queries, H] and [documents, H], L2-normalised."""

    queries: NDArray[np.float32]
    documents: NDArray[np.float32]


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Rate of a step: linear rise over the first `warmup` share, then linear fall to 0 at `steps` (G6)."""
    rise = warmup * steps
    if step < rise:
        return peak * step / rise
    return peak * max(steps - step, 0) / max(steps - rise, 1.0)


class Objective(nn.Module):
    """The configured loss over one batch of vectors."""

    def __init__(self, config: ObjectiveConfig) -> None:
        super().__init__()
        self.config = config
        self.bce = BceObjective(
            config.scale,
            config.shift,
            config.learn_scale and config.kind == "bce",
            config.nce_weight,
            config.inverse_temperature,
        )

    def forward(self, queries: Tensor, documents: Tensor, relevant: Tensor) -> Tensor:
        """Loss of B pairs: vectors float [B, H], `relevant` bool [B, B]."""
        cosines = queries @ documents.T
        blocked = blocked_negatives(relevant, queries.detach() @ queries.detach().T, self.config.query_mask)
        if self.config.kind == "bce":
            return self.bce(cosines, blocked)  # type: ignore[no-any-return]
        return softmax_loss(cosines, blocked, self.config.temperature)


class Trainer:
    """Trains two towers in place.

    Args:
        config: the run.
        towers: to be trained.
        batches: the pairs.
        targets: teacher vectors a collection, where the objective distils.
        folder: where state and metrics are kept.
        on_progress: called after every step.
    """

    def __init__(
        self,
        config: TrainConfig,
        towers: TwoTowers,
        batches: PairBatches,
        folder: Path,
        targets: Sequence[Targets] = (),
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.config = config
        self.towers = towers
        self.batches = batches
        self.targets = targets
        self.folder = folder
        self.on_progress = on_progress
        towers.words.weight.requires_grad_(config.towers.train_words)
        self.objective = Objective(config.objective)
        self.model = nn.ModuleDict({"towers": towers, "objective": self.objective})
        self.optimiser = _optimiser(self.model, config.optimiser)
        self.steps = batches.steps_per_epoch * config.optimiser.epochs
        if config.optimiser.max_steps:
            self.steps = min(self.steps, config.optimiser.max_steps)

    def run(self) -> list[float]:
        """Trains to the last step, going on from a saved state where there is one.

        Returns:
            The loss of every step of this call.

        Raises:
            MismatchError: the saved state is of another run.
        """
        fingerprint = self._fingerprint()
        first = load_state(self.folder, self.model, self.optimiser, fingerprint)
        self.folder.mkdir(parents=True, exist_ok=True)
        losses: list[float] = []
        start = time.monotonic()
        self.towers.train()
        with (self.folder / METRICS_FILE).open("a", encoding="utf-8") as metrics:
            for step, batch in self._batches(first):
                losses.append(self._step(step, batch))
                done = step + 1
                speed = len(losses) * self.config.optimiser.batch_size / (time.monotonic() - start)
                progress = Progress(done, self.steps, float(np.mean(losses[-50:])), speed)
                self.on_progress(progress)
                if done % METRICS_STEPS == 0 or done == self.steps:
                    metrics.write(
                        json.dumps({"step": done, "loss": losses[-1], "rate": self._rate(step)}) + "\n"
                    )
                    metrics.flush()
                if done % self.config.checkpoint_steps == 0 or done == self.steps:
                    save_state(self.folder, self.model, self.optimiser, done, fingerprint)
        self.towers.eval()
        return losses

    def _batches(self, first: int) -> Iterator[tuple[int, PairBatch]]:
        step = 0
        for epoch in range(self.config.optimiser.epochs):
            if step + self.batches.steps_per_epoch <= first:
                step += self.batches.steps_per_epoch
                continue
            for batch in self.batches.epoch(epoch):
                if step >= self.steps:
                    return
                if step >= first:
                    yield step, batch
                step += 1

    def _rate(self, step: int) -> float:
        # Steps are counted from 1 here: a first step at rate 0 would be a wasted one.
        return learning_rate(
            step + 1, self.steps + 1, self.config.optimiser.learning_rate, self.config.optimiser.warmup
        )

    def _step(self, step: int, batch: PairBatch) -> float:
        # Seeding each step, not the run, lets a resumed run draw what the unbroken one would have drawn.
        torch.manual_seed(self.config.seed * 1_000_003 + step)
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.optimiser.precision == "bf16"):
            queries = self._encode(self.towers.query, self.batches.queries[batch.collection], batch.queries)
            documents = self._encode(
                self.towers.document, self.batches.documents[batch.collection], batch.documents
            )
        loss = self.objective(queries, documents, torch.from_numpy(batch.relevant))
        loss = loss + self._distillation(batch, queries, documents)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimiser.clip_norm)
        self.optimiser.step()
        return float(loss.detach())

    def _encode(
        self, tower: Tower, sequences: Sequence[WeightedTokens], numbers: NDArray[np.int64]
    ) -> Tensor:
        batch = pad([sequences[number] for number in numbers], self.batches.pad_id)
        arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
        return tower(*(torch.from_numpy(array) for array in arrays)).float()  # type: ignore[no-any-return]

    def _distillation(self, batch: PairBatch, queries: Tensor, documents: Tensor) -> Tensor:
        """Weighted mean of 1 - cosine to the teacher's vectors, both sides."""
        weight = self.config.objective.distill_weight
        if not weight:
            return torch.zeros(())
        targets = self.targets[batch.collection]
        wanted = torch.from_numpy(
            np.stack([targets.queries[batch.queries], targets.documents[batch.documents]])
        )
        found = torch.stack([queries, documents])
        return weight * (1.0 - (wanted * found).sum(-1)).mean() * 2.0

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self.config.model_dump_json().encode())
        for collection in self.batches.collections:
            digest.update(collection.pairs.tobytes())
        return digest.hexdigest()


def _optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.AdamW:
    """AdamW without decay on biases, norms and the objective's scalars (the released code decays the last)."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if parameter.ndim > 1]
    plain = [parameter for parameter in trained if parameter.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, eps=1e-6)
