"""The loop of pre-training: resumable, on one device or several processes."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from torch import nn

from glow.nn import Pretrainer, PretrainingBatch
from glow.training.pretraining.config import PretrainConfig
from glow.training.pretraining.samples import Samples
from glow.training.run import (
    Position,
    TrainingDevice,
    autocast,
    average_gradients,
    learning_rate,
    load_state,
    open_accelerator,
    save_state,
    share_parameters,
)
from glow.training.run_folder import METRICS_FILE, read_metrics

__all__ = ["PretrainProgress", "PretrainTrainer", "attention_entropy"]

METRICS_STEPS = 10
PLAN_FILE = "steps.json"
ENTROPY_ROWS = 32
"""Sequences of a sample whose attention is looked at: few, or memory would grow with the square of a sample's length."""
TIMED_STEPS, UNTIMED_STEPS = 5, 2
"""Steps that are timed where a run is bounded by minutes, after some that warm up."""


@dataclass(frozen=True, slots=True)
class PretrainProgress:
    """What is shown after a step.

    Attributes:
        step, steps: done, and to be done.
        loss: mean of the last 50 steps.
        tokens_per_second: of all processes, since the start of this call.
        entropy: of the cross-sequence attention, as a share of its largest: 1 looks at all sequences alike, 0 at one; NaN where it was not
            looked at, or there is none.
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    entropy: float


class PretrainTrainer:
    """Trains a model in place.

    Args:
        config: the run.
        model: to be trained; it is moved to the device.
        samples: of the text.
        folder: where state and metrics are kept.
        fingerprint: of all that decides the run; a state of another is refused.
        device: `auto` takes a GPU where there is one.
        minutes: how long the run may take, by the speed of its first steps; 0: as many steps as configured. The number is kept, so
            that a resumed run does as many.
        on_progress: called after every step.

    Attributes:
        position: where the run stands.
        steps: to be done.

    Raises:
        ConfigError: if the device is not there, or cannot compute in the configured precision.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: Pretrainer,
        samples: Samples,
        folder: Path,
        fingerprint: str,
        device: TrainingDevice = "auto",
        minutes: float = 0.0,
        on_progress: Callable[[PretrainProgress], None] = lambda progress: None,
    ) -> None:
        self.config, self.samples, self.folder = config, samples, folder
        self._on_progress, self._minutes = on_progress, minutes
        self.accelerator = open_accelerator(config.optimizer.precision, device)
        self._fingerprint = f"{fingerprint}-{self.accelerator.num_processes}-{minutes:g}"
        self.device = self.accelerator.device
        self.model = model.to(self.device)
        self.optimizer = _optimizer(model, config)
        self._stepper = self.accelerator.prepare(self.optimizer)
        self._autocast = autocast(config.optimizer.precision, self.device)
        self.position = Position()
        self.steps = config.optimizer.steps
        self._entropy = float("nan")

    def run(self) -> list[float]:
        """Trains to the last step, going on from a saved state; returns the losses of this call's steps.

        Raises:
            MismatchError: if the saved state is of another run.
        """
        self.position = load_state(self.folder, self.model, self.optimizer, self._fingerprint)
        share_parameters(self.model)
        self.steps = self._planned_steps()
        self._drop_metrics()
        every, start = self.config.checkpoint_steps, time.monotonic()
        losses: list[float] = []
        self.model.train()
        for step in range(self.position.step, self.steps):
            losses.append(self._step(step))
            self.position.step = step + 1
            last = step + 1 == self.steps
            if (step + 1) % METRICS_STEPS == 0 or last:
                self._entropy = attention_entropy(self.model, self._batch(step))
            speed = len(losses) * self._tokens / (time.monotonic() - start)
            progress = PretrainProgress(
                step + 1, self.steps, float(np.mean(losses[-50:])), speed, self._entropy
            )
            self._record(progress, losses[-1], last)
            self._on_progress(progress)
            if ((step + 1) % every == 0 or last) and self.accelerator.is_main_process:
                save_state(self.folder, self.model, self.optimizer, self.position, self._fingerprint)
        self.accelerator.wait_for_everyone()
        self.model.eval()
        return losses

    @property
    def _tokens(self) -> int:
        wanted = self.config.pretraining
        sequences = wanted.sequences if wanted.kind == "cross-thought" else 1
        return self.config.samples * sequences * wanted.length * int(self.accelerator.num_processes)

    def _batch(self, step: int) -> PretrainingBatch:
        found = self.samples.batch(step, self.accelerator.process_index, self.accelerator.num_processes)
        return found.to(self.device)

    def _step(self, step: int) -> float:
        # Seeding each step, not the run, lets a resumed run draw what the unbroken one would have drawn.
        torch.manual_seed((self.config.seed * 1_000_003 + step) * 64 + self.accelerator.process_index)
        options = self.config.optimizer
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step + 1, self.steps + 1, options.learning_rate, options.warmup)
        self._stepper.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.model(self._batch(step))
        self.accelerator.backward(loss)
        average_gradients(self.accelerator, self.model.parameters())
        self.accelerator.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self._stepper.step()
        return float(loss.detach())

    def _planned_steps(self) -> int:
        """Steps of a run that is bounded by minutes: as many as the speed of a few, which change nothing, leaves time for."""
        if not self._minutes:
            return self.config.optimizer.steps
        plan = self.folder / PLAN_FILE
        shared = [0]
        if self.accelerator.is_main_process:
            known = json.loads(plan.read_bytes()) if plan.is_file() else {}
            if known.get("fingerprint") != self._fingerprint:
                known = {"fingerprint": self._fingerprint, "steps": self._affordable()}
                self.folder.mkdir(parents=True, exist_ok=True)
                plan.write_text(json.dumps(known) + "\n", encoding="utf-8")
            shared = [int(known["steps"])]
        broadcast_object_list(shared)
        return shared[0]

    def _affordable(self) -> int:
        start = time.monotonic()
        for step in range(UNTIMED_STEPS + TIMED_STEPS):
            if step == UNTIMED_STEPS:
                start = time.monotonic()
            with self._autocast():
                self.model(self._batch(step)).backward()
        self.model.zero_grad(set_to_none=True)
        seconds = (time.monotonic() - start) / TIMED_STEPS
        return max(1, int(self._minutes * 60.0 / seconds))

    def _drop_metrics(self) -> None:
        """Drops the lines of steps that a resumed run takes again."""
        path = self.folder / METRICS_FILE
        if not self.accelerator.is_main_process or not path.is_file():
            return
        kept = [
            json.dumps(row) + "\n" for row in read_metrics(self.folder) if row["step"] <= self.position.step
        ]
        temporary = path.with_suffix(".part")
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(path)

    def _record(self, progress: PretrainProgress, loss: float, last: bool) -> None:
        if not self.accelerator.is_main_process or (progress.step % METRICS_STEPS and not last):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        row: dict[str, object] = {"step": progress.step, "loss": round(loss, 5)}
        row["tokens_per_second"] = round(progress.tokens_per_second)
        if progress.entropy == progress.entropy:
            row["entropy"] = round(progress.entropy, 5)
        with (self.folder / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def attention_entropy(model: Pretrainer, batch: PretrainingBatch) -> float:
    """Entropy of the cross-sequence attention over a batch's first sample, divided by that of equal shares; NaN without one."""
    if model.crossed is None:
        return float("nan")
    sequences = batch.sequences
    with torch.no_grad():
        specials = model.crossed.embed(batch.masked[:sequences], batch.mask[:sequences])
        shares = model.crossed.logits(specials[:ENTROPY_ROWS], specials).softmax(-1)
    entropy = torch.special.entr(shares).sum(-1).mean()
    return float(entropy / np.log(sequences))


def _optimizer(model: nn.Module, config: PretrainConfig) -> torch.optim.AdamW:
    """AdamW with the betas of RoBERTa's large batches, without decay on biases and norms."""
    options = config.optimizer
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=True)
