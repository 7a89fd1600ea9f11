"""Distills a query tower: it learns the full encoder's vectors of unlabeled texts.

n   texts of a batch        H   dimensions
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glow.nn import Tower, TwoTowers
from glow.text import Preprocessor
from glow.training.data import Epochs
from glow.training.encode import Encoding, encode, vectors
from glow.training.run import (
    Loss,
    Moment,
    OptimizerOptions,
    Progress,
    Recipe,
    RunConfig,
    WatchConfig,
    linear,
    parameters_hash,
)
from glow.training.teacher import Aims, TeacherVectors, query_key

EPOCHS, PULL, SHOWN_STEPS = 8, 10.0, 50
WATCH = WatchConfig(steps=100, patience=4)
BATCH, OPTIMIZER = 128, OptimizerOptions(learning_rate=5e-4)


@dataclass(frozen=True, slots=True, eq=False)
class QueryTexts:
    """Training texts and held-out texts, with the full encoder's vectors of them."""

    # texts, held: texts
    texts: Sequence[str]
    held: Sequence[str]
    # aims, held_aims: their vectors, float32 [n, H]
    aims: Aims
    held_aims: Aims
    hash: str  # hash of the encoder

    @classmethod
    def make(
        cls, folder: Path, whole: Tower, preprocessor: Preprocessor, texts: Sequence[str], held: Sequence[str]
    ) -> Self:
        """Encodes the texts whose vectors the directory lacks; refuses a directory of another encoder."""
        every = [*texts, *held]

        def encode(numbers: Sequence[int]) -> NDArray[np.float32]:
            sequences = [preprocessor.query(every[number]) for number in numbers]
            return vectors(whole, sequences, preprocessor.pieces.pad_id)

        keys, count = [query_key(text) for text in every], len(texts)
        made = TeacherVectors.make(folder, parameters_hash(whole), keys, encode)
        aims, held_aims = (made.aims(part, "texts") for part in (keys[:count], keys[count:]))
        return cls(texts, held, aims, held_aims, made.teacher)


class TextBatches:
    """Batches of text numbers in a random order for each epoch; implements `glow.training.run.Data`."""

    def __init__(self, count: int, seed: int, epochs: int, batch_size: int) -> None:
        size = min(batch_size, count)

        def plan(random: np.random.Generator) -> list[tuple[int, NDArray[np.int64]]]:
            order = random.permutation(count)
            return [(0, order[start : start + size]) for start in range(0, count - size + 1, size)]

        self._epochs = Epochs(count // size, epochs, 0, seed, plan)
        self.steps = self._epochs.steps

    def batch(self, step: int, process: int, processes: int) -> NDArray[np.int64]:
        """Int64 [n]."""
        return self._epochs.turn(step, process, processes).rows


class QueryLoss(nn.Module):
    """The loss between a query tower's vectors and the full encoder's."""

    def __init__(self, tower: Tower, preprocessor: Preprocessor, made: QueryTexts) -> None:
        super().__init__()
        self.tower = tower
        self._preprocessor, self._made = preprocessor, made

    def forward(self, rows: NDArray[np.int64], moment: Moment) -> Loss:
        """Mean of 1 - cosine over a batch."""
        encoding = Encoding(self._preprocessor.pieces.pad_id, moment.device, moment.autocast)
        found = encode(
            encoding, self.tower, [self._preprocessor.query(self._made.texts[row]) for row in rows]
        )
        wanted = torch.from_numpy(self._made.aims[rows]).to(moment.device)
        distance = (1.0 - nn.functional.cosine_similarity(found, wanted)).mean()
        return Loss(PULL * distance, len(rows), {"cosine": 1.0 - float(distance.detach())})

    def measure(self, moment: Moment) -> dict[str, float]:
        """Mean cosine of held-out texts."""
        tokens = [self._preprocessor.query(text) for text in self._made.held]
        found = vectors(self.tower, tokens, self._preprocessor.pieces.pad_id, "fp32", str(moment.device))
        wanted = self._made.held_aims[:]
        lengths = np.maximum(np.linalg.norm(wanted, axis=1), 1e-12)
        return {"held-out cosine": float(((found * wanted).sum(1) / lengths).mean())}


def query_recipe(
    towers: TwoTowers,
    preprocessor: Preprocessor,
    made: QueryTexts,
    seed: int,
    hours: float = 0.0,
    epochs: int = EPOCHS,
) -> Recipe[NDArray[np.int64]]:
    """The recipe that distills the query tower of `towers`, which may be partly frozen; 0 hours: all epochs."""
    loss = QueryLoss(towers.query, preprocessor, made)
    return Recipe(
        RunConfig(name="distil", seed=seed, optimizer=OPTIMIZER, watch=WATCH),
        TextBatches(len(made.texts), seed, epochs, BATCH),
        towers.query,
        loss,
        lambda folder, report: None,
        [made.hash, parameters_hash(towers)],
        rate=linear(0.05),
        measures=loss.measure if made.held else None,
        about={"texts": len(made.texts), "held_out": len(made.held)},
        unit="texts",
        minutes=60.0 * hours,
    )


def teller(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Says the loss at some steps, and every measurement."""

    def tell(progress: Progress) -> None:
        if progress.dev or progress.step % SHOWN_STEPS == 0:
            dev = "".join(f", {name} {value:.4f}" for name, value in progress.dev.items())
            say(f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.4f}{dev}")

    return tell
