"""A batch encoded in groups is the batch encoded at once."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from glow.nn import TowerConfig, TwoTowers
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces
from glow.training import encode as module
from glow.training.encode import Encoding, encode

SCHEMA = FieldSchema.preset("glow-default")
TEXTS = [
    "a",
    "the quick brown fox jumps over the lazy dog",
    "list files",
    "print the working directory of a shell",
]


def towers(dropout: float) -> TwoTowers:
    torch.manual_seed(0)
    shape = TowerConfig(vocabulary=30_522, hidden=16, layers=2, heads=2, intermediate=32, dropout=dropout)
    found = TwoTowers(shape, SCHEMA)
    with torch.no_grad():  # freshly drawn towers hardly attend at all
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return found


@pytest.fixture
def sequences(toy_model: Path) -> list[WeightedTokens]:
    pieces = WordPieces(toy_model / "vocab.txt")
    preprocessor = Preprocessor(
        pieces,
        SCHEMA,
        Weighting(),
        TermTable.from_counts({"the": 90, "a": 80, "of": 70}, 100, {"query": 5.0}),
    )
    return [preprocessor.query(text) for text in TEXTS]


def encoding() -> Encoding:
    return Encoding(0, torch.device("cpu"), nullcontext)


def test_groups_of_like_length_keep_the_order_of_the_batch(
    sequences: list[WeightedTokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = towers(0.0).eval()
    monkeypatch.setattr(module, "GROUP_TEXTS", 3)
    found = encode(encoding(), model.query, sequences)
    alone = torch.cat([encoding().run(model.query, [sequence]) for sequence in sequences])
    torch.testing.assert_close(found, alone, atol=1e-6, rtol=0.0)
