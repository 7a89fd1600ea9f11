"""Parity: what passes, and that NaN never does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import ExportError
from glow.nn.towers import Tower
from glow.text import WeightedTokens
from glow_model_export import parity
from glow_model_export.parity import check_parity

UNIT: NDArray[np.float32] = np.eye(3, 4, dtype=np.float32)
SIDES = ("torch", "float.onnx", "shipped.onnx")
Vectors = dict[str, NDArray[np.float32]]


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Vectors:
    """What each side gives for three texts; change it to break one."""
    found = {side: UNIT.copy() for side in SIDES}

    class Fixed:
        def __init__(self, path: Path, pad_id: int) -> None:
            self.encode = self.run = lambda sequences: found[path.name][: len(sequences)]

    monkeypatch.setattr(parity, "Encoder", Fixed)
    monkeypatch.setattr(parity, "torch_vectors", lambda *_: found["torch"])
    return found


def check() -> parity.TowerParity:
    sequences: list[WeightedTokens] = [object()] * 3  # type: ignore[list-item]
    tower: Tower = object()  # type: ignore[assignment]
    return check_parity(tower, Path("float.onnx"), Path("shipped.onnx"), sequences, 0)


def test_equal_vectors_pass(vectors: Vectors) -> None:
    assert vectors.keys() == set(SIDES)
    found: dict[str, Any] = check().as_json()
    assert (found["texts"], found["max_difference"], found["mean_cosine"]) == (3, 0.0, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (("shipped.onnx",), "1 from the shipped ONNX; expected finite"),
        (("float.onnx", "shipped.onnx"), "1 from float ONNX, 1 from the shipped ONNX"),
        (SIDES, "1 from torch, 1 from float ONNX, 1 from the shipped ONNX"),
    ],
)
def test_a_vector_that_is_not_finite_is_refused(
    vectors: Vectors, broken: tuple[str, ...], message: str, value: float
) -> None:
    """One text of three is enough, and the message says whose vectors they are."""
    for side in broken:
        vectors[side][1] = value
    with pytest.raises(ExportError, match=message):
        check()
