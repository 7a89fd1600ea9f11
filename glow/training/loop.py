"""The training loop: one step after another over pair batches, resumable, on one device or several.

Of several processes (`accelerate launch` on GPUs, `torchrun` on a CPU) every one takes its own batches and gradients
are averaged, as the released code does with Horovod; negatives come from a process's own batch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from torch import nn

from glow.errors import ConfigError
from glow.nn import Tower, TwoTowers
from glow.text import WeightedTokens
from glow.training.config import OptimizerConfig, Side, TrainConfig
from glow.training.data import PairBatch, PairBatches
from glow.training.fingerprint import fingerprint, parameters_hash
from glow.training.objective import Objective, Targets
from glow.training.run import (
    Position,
    Progress,
    TrainingDevice,
    autocast,
    average_gradients,
    learning_rate,
    load_state,
    open_accelerator,
    save_state,
    share_parameters,
)
from glow.training.run_folder import RunFolder
from glow.training.step import CachedBatch, Encoding, encode
from glow.training.watch import Watch

__all__ = ["Trainer"]

METRICS_STEPS = 10


class Trainer:
    """Trains two towers in place.

    Args:
        config: the run.
        towers: to be trained; they are moved to the device.
        batches: the pairs.
        folder: where state, metrics and pictures are kept.
        targets: teacher vectors a collection, where the objective looks at a teacher.
        watch: dev retrieval, where it is watched.
        device: `auto` takes a GPU where there is one.
        on_progress: called after every step.
        origins: hashes of what decides the run beside configuration, pairs and towers: term table, vocabulary,
            teacher. A state of others is refused.

    Attributes:
        position: where the run stands.
        fingerprint: of all that decides its weights, "" before it runs.

    Raises:
        ConfigError: if the device is not there, or cannot compute in the configured precision; or there are fewer
            batches than processes.
    """

    def __init__(
        self,
        config: TrainConfig,
        towers: TwoTowers,
        batches: PairBatches,
        folder: Path,
        targets: Sequence[Targets] = (),
        watch: Watch | None = None,
        device: TrainingDevice = "auto",
        on_progress: Callable[[Progress], None] = lambda progress: None,
        origins: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.batches = batches
        self.targets = targets
        self.watch = watch
        self.on_progress = on_progress
        self.position = Position()
        self.fingerprint = ""
        self._origins = (*origins, parameters_hash(towers))
        self.accelerator = open_accelerator(config.optimizer.precision, device)
        self.device = self.accelerator.device
        self.towers = towers.to(self.device)
        learns = config.towers.learns
        for side, tower in (("query", towers.query), ("document", towers.document)):
            tower.requires_grad_(learns in ("both", side))
        towers.words.weight.requires_grad_(config.towers.train_words)
        self.objective = Objective(config.objective).to(self.device)
        self.model = nn.ModuleDict({"towers": towers, "objective": self.objective})
        self.optimizer = _optimizer(self.model, config.optimizer)
        self._stepper = self.accelerator.prepare(self.optimizer)
        self.steps = self._steps_per_epoch * config.optimizer.epochs
        if not self.steps:
            raise ConfigError(
                f"an epoch has {batches.steps_per_epoch} batches for {self.accelerator.num_processes} processes; "
                "start fewer processes, or lower batch_size"
            )
        if config.optimizer.max_steps:
            self.steps = min(self.steps, config.optimizer.max_steps)
        self.run_folder = RunFolder(folder, active=self.accelerator.is_main_process)

    def run(self) -> list[float]:
        """Trains to the last step or until dev retrieval gets no better, going on from a saved state.

        Returns:
            The loss of every step of this call.

        Raises:
            MismatchError: if the saved state is of another run.
        """
        self.fingerprint = self._shared_fingerprint()
        position = load_state(self.run_folder.path, self.model, self.optimizer, self.fingerprint)
        self.position = position
        share_parameters(self.model)
        self.run_folder.open(self.config, position.step)
        losses: list[float] = []
        start = time.monotonic()
        self.towers.train()
        for step, batch in self._batches(position.step):
            if self._exhausted(position):
                break
            loss, figures = self._step(step, batch)
            losses.append(loss)
            position.step = step + 1
            dev = self._look(position)
            speed = len(losses) * self._global_batch / (time.monotonic() - start)
            progress = Progress(position.step, self.steps, float(np.mean(losses[-50:])), speed, dev)
            self.on_progress(progress)
            last = position.step == self.steps
            if position.step % METRICS_STEPS == 0 or last or dev:
                self.run_folder.record(progress, loss, self._rate(step), figures)
            if position.step % self.config.checkpoint_steps == 0 or last or dev:
                if self.accelerator.is_main_process:
                    save_state(self.run_folder.path, self.model, self.optimizer, position, self.fingerprint)
        self.accelerator.wait_for_everyone()
        stops_early = self.config.watch.patience and position.best_step
        self.run_folder.finish(self.towers if stops_early else None)
        self.towers.eval()
        return losses

    @property
    def _steps_per_epoch(self) -> int:
        return int(self.batches.steps_per_epoch // self.accelerator.num_processes)

    @property
    def _global_batch(self) -> int:
        return int(self.config.optimizer.batch_size * self.accelerator.num_processes)

    def _exhausted(self, position: Position) -> bool:
        patience = self.config.watch.patience
        return bool(patience and position.looks_since_best >= patience)

    def _look(self, position: Position) -> dict[str, float]:
        """Measures dev retrieval where it is due, and keeps the best towers so far."""
        every = self.config.watch.steps
        if self.watch is None or not every or (position.step % every and position.step != self.steps):
            return {}
        measured = self.watch.measure(self.towers, self.config.optimizer.precision, str(self.device))
        # Processes must agree on when to stop; their vectors may differ in the last digits.
        shared = [measured]
        broadcast_object_list(shared)
        measured = shared[0]
        score = float(np.mean(list(measured.values())))
        if score > position.best_score:
            position.best_score, position.best_step, position.looks_since_best = score, position.step, 0
            if self.config.watch.patience:
                self.run_folder.keep_best(self.towers)
        else:
            position.looks_since_best += 1
        return measured

    def _batches(self, first: int) -> Iterator[tuple[int, PairBatch]]:
        step, processes, per_epoch = 0, self.accelerator.num_processes, self._steps_per_epoch
        for epoch in range(self.config.optimizer.epochs):
            if step + per_epoch <= first:
                step += per_epoch
                continue
            own = islice(self.batches.epoch(epoch), self.accelerator.process_index, None, processes)
            for batch in islice(own, per_epoch):
                if step >= self.steps:
                    return
                if step >= first:
                    yield step, batch
                step += 1

    def _rate(self, step: int) -> float:
        # Steps are counted from 1 here: a first step at rate 0 would be a wasted one.
        return learning_rate(
            step + 1, self.steps + 1, self.config.optimizer.learning_rate, self.config.optimizer.warmup
        )

    def _step(self, step: int, batch: PairBatch) -> tuple[float, dict[str, float]]:
        # Seeding each step, not the run, lets a resumed run draw what the unbroken one would have drawn.
        torch.manual_seed((self.config.seed * 1_000_003 + step) * 64 + self.accelerator.process_index)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(step) * group["factor"]
        self._stepper.zero_grad(set_to_none=True)
        loss, figures = self._backward(step, batch)
        average_gradients(self.accelerator, self.model.parameters())
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip_norm)
        self._stepper.step()
        return float(loss), figures

    def _backward(self, step: int, batch: PairBatch) -> tuple[torch.Tensor, dict[str, float]]:
        encoding = self._encoding(step)
        sides = [self._side(side, batch) for side in self.config.sides]
        if not encoding.chunk_size:
            vectors = [encode(encoding, tower, sequences) for tower, sequences in sides]
            loss, figures = self._loss(vectors, batch)
            self.accelerator.backward(loss)
            return loss.detach(), figures
        cached = [CachedBatch(encoding, tower, sequences) for tower, sequences in sides]
        loss, figures = self._loss([side.vectors for side in cached], batch)
        self.accelerator.backward(loss)
        for side in cached:
            side.backward()
        return loss.detach(), figures

    def _side(self, side: Side, batch: PairBatch) -> tuple[Tower, list[WeightedTokens]]:
        """A tower, and what it encodes of a batch."""
        batches, number = self.batches, batch.collection
        if side == "query":
            return self.towers.query, batches.queries_of(batch)
        return self.towers.document, [batches.documents[number][row] for row in batch.documents]

    def _loss(
        self, vectors: Sequence[torch.Tensor], batch: PairBatch
    ) -> tuple[torch.Tensor, dict[str, float]]:
        targets = self.targets[batch.collection] if self.targets else Targets(None, None)
        wanted = [target.to(self.device) for target in targets.of(batch)]
        if len(vectors) == 1:
            return self.objective.alone(*vectors, *wanted)
        relevant = torch.from_numpy(batch.relevant).to(self.device)
        lexical = torch.from_numpy(targets.lexical(batch)).to(self.device) if targets.lexical else None
        return self.objective(*vectors, relevant, wanted, lexical)  # type: ignore[no-any-return]

    def _encoding(self, step: int) -> Encoding:
        options = self.config.optimizer
        rise = options.strength_warmup * self.steps
        return Encoding(
            self.batches.pad_id,
            self.device,
            autocast(options.precision, self.device),
            min(step / rise, 1.0) if rise else 1.0,
            options.chunk_size,
        )

    def _shared_fingerprint(self) -> str:
        """The first process's, whose parameters and state all go by."""
        shared = [""]
        if self.accelerator.is_main_process:
            processes, collections = self.accelerator.num_processes, self.batches.collections
            shared = [fingerprint(self.config, processes, collections, self._origins)]
        broadcast_object_list(shared)
        return shared[0]


def _optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW without decay on biases, norms and scalars (the released code decays the objective's scale and shift)."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    merging = {name for name in trained if name.endswith(".gain") or ".merge." in name}
    gains = [parameter for name, parameter in trained.items() if name in merging]
    others = [parameter for name, parameter in trained.items() if name not in merging]
    decayed, plain = [p for p in others if p.ndim > 1], [p for p in others if p.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay, "factor": 1.0},
        {"params": plain, "weight_decay": 0.0, "factor": 1.0},
        {"params": gains, "weight_decay": 0.0, "factor": config.gain_rate},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.learning_rate, eps=1e-6, fused=True
    )
