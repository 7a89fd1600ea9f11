"""What a saved state belongs to: all that decides a run's weights, wherever its files lie."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from glow.records import Document
from glow.training.data import Collection, collection_hash
from glow.training.run import Recipe
from glow.training.run.loop import _fingerprint
from glow.training.towers import TrainConfig

CONFIG = TrainConfig(name="x")
DOCUMENTS = [Document("a", {"text": ("bees find home",)}), Document("b", {"text": ("wax",)})]
COLLECTION = Collection("toy", DOCUMENTS, ["bees", "wax"], ["1", "2"], [frozenset({0}), frozenset({1})])


class Read(Sequence[Any]):
    """A sequence that says nothing of what it holds, as one that is read from disk."""

    def __init__(self, *values: tuple[int, ...]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        return self._values[place]


def of(
    config: TrainConfig = CONFIG, processes: int = 1, minutes: float = 0.0, bias: float = 0.0, **changes: Any
) -> str:
    module = torch.nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(bias)
    origins = [*changes.pop("origins", []), collection_hash(replace(COLLECTION, **changes))]
    return _fingerprint(Recipe(config, Mock(), module, module, Mock(), origins, minutes=minutes), processes)


@pytest.mark.parametrize(
    "change",
    [
        lambda: of(CONFIG.model_copy(update={"seed": 5})),
        lambda: of(processes=2),
        lambda: of(minutes=1.0),
        lambda: of(bias=1.0),
        lambda: of(origins=["another teacher"]),
        lambda: of(documents=[DOCUMENTS[0], Document("b", {"text": ("honey",)})]),
        lambda: of(documents=[DOCUMENTS[0], Document("c", {"text": ("wax",)})]),
        lambda: of(queries=["bees", "honey"]),
        lambda: of(relevant=[frozenset({0}), frozenset({0})]),
        lambda: of(negatives=[(), ()]),
    ],
)
def test_everything_that_decides_the_weights_counts(change: Callable[[], str]) -> None:
    assert change() != of()


def test_a_renamed_folder_is_the_same() -> None:
    assert of(name="moved") == of()


def test_negatives_count_by_their_numbers() -> None:
    first = of(negatives=Read((1, 0), ()))
    assert first == of(negatives=Read((1, 0), ())) == of(negatives=[(1, 0), ()])
    assert len({first, of(negatives=Read((0, 1), ())), of(negatives=Read((1,), (0,))), of()}) == 4
