"""The loop of a re-ranker's training: resumable, one process."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.nn import CrossEncoder, Side
from glow.training.rerank.candidates import CandidateBatch, CandidateBatches, Texts
from glow.training.rerank.config import RerankConfig, RerankObjective, RerankOptimizer
from glow.training.rerank.measure import read_side
from glow.training.run import (
    Position,
    Progress,
    autocast,
    check_precision,
    learning_rate,
    load_state,
    save_state,
)

__all__ = ["RerankTrainer", "attention_loss", "distillation_loss", "rerank_loss"]


def rerank_loss(logits: Tensor, kind: str) -> Tensor:
    """The loss of queries whose relevant document stands first, a scalar.

    Args:
        logits: float [B, 1 + N].
        kind: `list` or `pairwise`, as `RerankObjective`.
    """
    shares = functional.log_softmax(logits.float(), -1)[:, 0]
    return -shares.mean() if kind == "list" else (1.0 - shares.exp()).mean()


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """How far the shares of a query's candidates are from a teacher's: Kullback-Leibler divergence, mean over queries, a scalar >= 0.

    Args:
        logits, teacher: float [B, 1 + N].
    """
    wanted = functional.log_softmax(teacher.float(), -1)
    found = functional.log_softmax(logits.float(), -1)
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def attention_loss(model: CrossEncoder, query: Side, document: Side) -> Tensor:
    """What the compressor changes of the joined layers' attention: mean squared difference, mean over layers (Table 1).

    Padding counts neither as a row nor as a column (row 30). Gradients reach the compressor alone where all else is frozen.

    Args:
        model: with a compressor.
        query, document: float [B, L, H], before the compressor.

    Returns:
        A scalar >= 0; 0 for a compressor that changes nothing.
    """
    with torch.no_grad():
        wanted = model.attentions(query, document)
    found = model.attentions(model.through(query), model.through(document))
    mask = torch.cat([query.mask, document.mask], 1)
    real = (mask[:, :, None] & mask[:, None, :])[:, None].expand_as(found[0])  # [B, heads, L, L]
    differences = [(ours.float() - theirs.float())[real] for ours, theirs in zip(found, wanted, strict=True)]
    return torch.stack([(difference**2).mean() for difference in differences]).mean()


class RerankTrainer:
    """Trains a cross-encoder in place.

    Args:
        config: the run.
        model: to be trained.
        batches: queries with candidates.
        texts: of every collection.
        pad_id: id of [PAD].
        folder: where the state is kept.
        fingerprint: of all that decides the run; a state of another is refused.
        device: as torch names it.
        on_progress: called after every step.
        teacher: what `objective.distill` compares with; it reads the same texts. None: there is none.

    Raises:
        ConfigError: if the device cannot compute in the configured precision.
    """

    def __init__(
        self,
        config: RerankConfig,
        model: CrossEncoder,
        batches: CandidateBatches,
        texts: Sequence[Texts],
        pad_id: int,
        folder: Path,
        fingerprint: str,
        device: str = "cpu",
        on_progress: Callable[[Progress], None] = lambda progress: None,
        teacher: CrossEncoder | None = None,
    ) -> None:
        self.config, self.batches, self.texts = config, batches, texts
        self.device = torch.device(device)
        precision = config.optimizer.precision
        check_precision(precision, self.device)
        self._autocast = autocast(precision, self.device)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=precision == "fp16")
        self.model = model.to(self.device)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("compressor.") or config.objective.kind != "attention")
        model.words.weight.requires_grad_(config.cross.train_words and config.objective.kind != "attention")
        self.steps = batches.steps_per_epoch * config.optimizer.epochs
        if config.optimizer.max_steps:
            self.steps = min(self.steps, config.optimizer.max_steps)
        self.optimizer = _optimizer(model, config.optimizer)
        self.position = Position()
        self._pad_id, self._folder, self._fingerprint = pad_id, folder, fingerprint
        self._on_progress = on_progress
        self._teacher = teacher.to(self.device).eval() if teacher is not None else None

    def run(self) -> list[float]:
        """Trains to the last step, going on from a saved state; returns the losses of this call's steps.

        Raises:
            MismatchError: if the saved state is of another run.
        """
        self.position = load_state(self._folder, self.model, self.optimizer, self._fingerprint)
        self.model.train()
        losses: list[float] = []
        start, every = time.monotonic(), self.config.checkpoint_steps
        for step, batch in self._batches(self.position.step):
            losses.append(self._step(step, batch))
            self.position.step = step + 1
            speed = len(losses) * batch.documents.size / (time.monotonic() - start)
            self._on_progress(Progress(step + 1, self.steps, float(np.mean(losses[-50:])), speed))
            if (step + 1) % every == 0 or step + 1 == self.steps:
                save_state(self._folder, self.model, self.optimizer, self.position, self._fingerprint)
        self.model.eval()
        return losses

    def _batches(self, first: int) -> Iterator[tuple[int, CandidateBatch]]:
        step = 0
        for epoch in range(self.config.optimizer.epochs):
            for batch in self.batches.epoch(epoch):
                if step >= self.steps:
                    return
                if step >= first:
                    yield step, batch
                step += 1

    def _step(self, step: int, batch: CandidateBatch) -> float:
        # Seeding each step lets a resumed run draw what the unbroken one would have drawn.
        torch.manual_seed(self.config.seed * 1_000_003 + step)
        options = self.config.optimizer
        rate = learning_rate(step + 1, self.steps + 1, options.learning_rate, options.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss(batch, self.config.objective)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        return float(loss.detach())

    def _loss(self, batch: CandidateBatch, objective: RerankObjective) -> Tensor:
        query, document = self._sides(self.model, batch)
        if objective.kind == "attention":
            return attention_loss(self.model, query, document)
        shape = batch.documents.shape
        logits = self.model.score(self.model.through(query), self.model.through(document)).reshape(shape)
        first = objective.mix * torch.from_numpy(batch.scores).to(self.device)
        loss = rerank_loss(logits + first, objective.kind)
        if self._teacher is None:
            return loss
        with torch.no_grad():
            teacher = self._teacher
            query, document = self._sides(teacher, batch)
            wanted = teacher.score(teacher.through(query), teacher.through(document)).reshape(shape)
        share = objective.distill
        return (1.0 - share) * loss + share * distillation_loss(logits + first, wanted + first)

    def _sides(self, model: CrossEncoder, batch: CandidateBatch) -> tuple[Side, Side]:
        """Both sides of all pairs, before the compressor: each query is read once, and so is each of its documents."""
        texts, shape = self.texts[batch.collection], batch.documents.shape
        ids, mask, _, weights = read_side(
            [texts.query(number) for number in batch.queries.tolist()], self._pad_id, self.device
        )
        query = model.query_apart(ids, mask, weights)
        query = Side(*(part.repeat_interleave(shape[1], 0) for part in query))
        documents = [texts.document(row) for row in batch.documents.reshape(-1).tolist()]
        return query, model.document_apart(*read_side(documents, self._pad_id, self.device))


def _optimizer(model: CrossEncoder, config: RerankOptimizer) -> torch.optim.AdamW:
    """AdamW; no decay on biases and norms; what starts from chance learns faster."""
    fresh = ("head.", "compressor.", "late.")
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": decay, "factor": factor}
        for decay in (config.weight_decay, 0.0)
        for factor in (1.0, config.head_rate)
    ]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[2 * (parameter.ndim < 2) + name.startswith(fresh)]["params"].append(parameter)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.learning_rate, eps=1e-6, fused=True
    )
