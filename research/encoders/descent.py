"""Runs over tensors on one device, and a tower that learns given vectors of texts.

N   texts        H   dimensions
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.commands import say
from glow.nn import Tower
from glow.training.run import Adam, Group, Moment, OptimizerOptions, Progress, TrainingDevice, linear
from research.encoders.flat import Flat
from research.steps import Draws, take_steps

__all__ = ["TEMPERATURE", "descend", "distance", "imitate"]

TEMPERATURE = 0.05
PULL, KEYS, BLOCKS, SHOWN_STEPS = 10.0, 3, 32, 200


def descend(
    model: nn.Module,
    draws: Draws[Tensor],
    loss: Callable[[Tensor, Moment], Tensor],
    rate: float,
    warmup: float,
    groups: Sequence[Group] = (),
) -> None:
    """Trains a model in place on its device, as the encoders were: `take_steps` with a highest rate and a fraction of warm-up."""
    device: TrainingDevice = "cuda" if next(model.parameters()).is_cuda else "cpu"
    take_steps(
        model,
        draws,
        loss,
        OptimizerOptions(learning_rate=rate),
        tell=_tell,
        rate=linear(warmup),
        groups=groups,
        adam=Adam(betas=(0.9, 0.98)),
        device=device,
    )


def _tell(progress: Progress) -> None:
    if progress.step % SHOWN_STEPS == 0 or progress.step in (20, progress.steps):
        say(f"step {progress.step:,}: loss {progress.loss:.4f}")


def distance(found: Tensor, wanted: Tensor) -> Tensor:
    """Kullback-Leibler distance of the softmax of each row from that of the wanted scores, a scalar."""
    found, wanted = (functional.log_softmax(scores / TEMPERATURE, 1) for scores in (found, wanted))
    return functional.kl_div(found, wanted, log_target=True, reduction="batchmean")


def imitate(
    tower: Tower,
    texts: Flat,
    aims: Tensor,
    steps: int,
    batch: int,
    rate: float,
    warmup: float,
    spread: bool,
    seed: int = 1,
) -> None:
    """Trains a tower in place, except for its token embeddings and distances.

    Args:
        tower: on the device of the texts, in evaluation mode.
        texts, aims: texts and their vectors, float16 [N, H].
        steps, batch, rate, warmup: of `descend`, with the texts of a step.
        spread: whether similarities to vectors of other texts are learned too.
        seed: seed of the order.
    """
    for name, value in tower.named_parameters():
        value.requires_grad_(not name.startswith(("words.", "distances.")))
    batches = _of_like_length(texts.lengths, min(batch, len(aims)))

    def loss(rows: Tensor, moment: Moment) -> Tensor:
        wanted = aims[rows].float()
        with moment.autocast():
            found = tower(*texts.batch(rows, tower.positions.num_embeddings, 8)).float()
        value: Tensor = PULL * (1.0 - (found * wanted).sum(1)).mean()
        if not spread:
            return value
        others = aims[torch.randint(0, len(aims), (KEYS * len(rows),), device=aims.device)]
        keys = torch.cat([wanted, others.float()])
        return value + distance(found @ keys.T, wanted @ keys.T)

    descend(tower, Draws(seed, steps, lambda _: next(batches)), loss, rate, warmup)


def _of_like_length(lengths: Tensor, size: int) -> Iterator[Tensor]:
    while True:
        for chunk in torch.split(torch.randperm(len(lengths), device=lengths.device), size * BLOCKS):
            parts = torch.split(chunk[torch.argsort(lengths[chunk])], size)
            yield from (parts[at] for at in torch.randperm(len(parts)).tolist() if len(parts[at]) == size)
