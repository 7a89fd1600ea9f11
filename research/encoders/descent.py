"""Steps of AdamW, and a tower that learns given vectors of texts.

N   texts        H   dimensions
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.commands import say
from glow.nn import Tower
from research.encoders.flat import Flat, mixed

__all__ = ["TEMPERATURE", "Descent", "distance", "imitate"]

TEMPERATURE = 0.05
PULL, KEYS, BLOCKS, SHOWN_STEPS = 10.0, 3, 32, 200


class Descent:
    """AdamW whose rates rise in a fraction `warmup` of the steps and then fall."""

    def __init__(self, groups: list[dict[str, Any]], steps: int, warmup: float = 0.05) -> None:
        self._adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
        self._rates = [group["lr"] for group in groups]
        self._parameters = [each for group in groups for each in group["params"]]
        self._steps, self._warmup = steps, warmup
        self._losses: list[Tensor] = []

    def step(self, loss: Tensor) -> None:
        """Takes a step; prints the mean loss now and then."""
        done = len(self._losses) / self._steps
        for group, rate in zip(self._adam.param_groups, self._rates, strict=True):
            group["lr"] = rate * min(1.0, done / self._warmup + 0.02) * max(1.0 - done, 0.01)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._adam.step()
        self._losses.append(loss.detach())
        if len(self._losses) in (20, self._steps) or len(self._losses) % SHOWN_STEPS == 0:
            say(f"step {len(self._losses):,}: loss {float(torch.stack(self._losses[-50:]).mean()):.4f}")


def distance(found: Tensor, wanted: Tensor) -> Tensor:
    """Kullback-Leibler distance of the softmax of each row from that of the wanted scores, a scalar."""
    found, wanted = (functional.log_softmax(scores / TEMPERATURE, 1) for scores in (found, wanted))
    return functional.kl_div(found, wanted, log_target=True, reduction="batchmean")


def imitate(
    tower: Tower, texts: Flat, aims: Tensor, steps: int, batch: int, rate: float, warmup: float, spread: bool
) -> None:
    """Trains a tower in place, except for its token embeddings and distances.

    Args:
        tower: on the device of the texts, in evaluation mode.
        texts, aims: texts and their vectors, float16 [N, H].
        steps, batch, rate, warmup: of `Descent`, with the texts of a step and the highest rate.
        spread: whether similarities to vectors of other texts are learned too.
    """
    for name, value in tower.named_parameters():
        value.requires_grad_(not name.startswith(("words.", "distances.")))
    trained = [value for value in tower.parameters() if value.requires_grad]
    descent = Descent([{"params": trained, "lr": rate}], steps, warmup)
    batches = _of_like_length(texts.lengths, min(batch, len(aims)))
    for _ in range(steps):
        rows = next(batches)
        wanted = aims[rows].float()
        with mixed(aims.device):
            found = tower(*texts.batch(rows, tower.positions.num_embeddings, 8))
        loss = PULL * (1.0 - (found * wanted).sum(1)).mean()
        if spread:
            others = aims[torch.randint(0, len(aims), (KEYS * len(rows),), device=aims.device)]
            keys = torch.cat([wanted, others.float()])
            loss = loss + distance(found @ keys.T, wanted @ keys.T)
        descent.step(loss)


def _of_like_length(lengths: Tensor, size: int) -> Iterator[Tensor]:
    while True:
        for chunk in torch.split(torch.randperm(len(lengths), device=lengths.device), size * BLOCKS):
            parts = torch.split(chunk[torch.argsort(lengths[chunk])], size)
            yield from (parts[at] for at in torch.randperm(len(parts)).tolist() if len(parts[at]) == size)
