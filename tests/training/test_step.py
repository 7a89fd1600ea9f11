"""A batch encoded in groups is the batch encoded at once, and gradient caching gives the whole batch's gradient."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from glow.nn import TowerConfig, TwoTowers
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces
from glow.training import encode as module
from glow.training.encode import CachedBatch, Encoding, encode

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


def encoding(chunk_size: int = 0) -> Encoding:
    return Encoding(0, torch.device("cpu"), nullcontext, chunk_size)


def test_groups_of_like_length_keep_the_order_of_the_batch(
    sequences: list[WeightedTokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = towers(0.0).eval()
    monkeypatch.setattr(module, "GROUP_TEXTS", 3)
    found = encode(encoding(), model.query, sequences)
    alone = torch.cat([encoding().run(model.query, [sequence]) for sequence in sequences])
    torch.testing.assert_close(found, alone, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("chunk_size", [1, 2, 3])
def test_gradient_caching_gives_the_whole_batchs_gradient(
    sequences: list[WeightedTokens], chunk_size: int
) -> None:
    def loss(vectors: torch.Tensor) -> torch.Tensor:
        return (vectors @ vectors.T).exp().sum()  # every text depends on every other

    whole, parts = towers(0.0), towers(0.0)
    loss(encode(encoding(), whole.query, sequences)).backward()
    cached = CachedBatch(encoding(chunk_size), parts.query, sequences)
    loss(cached.vectors).backward()
    cached.backward()
    for (name, expected), (_, found) in zip(whole.named_parameters(), parts.named_parameters(), strict=True):
        assert (expected.grad is None) == (found.grad is None), name
        if expected.grad is not None and found.grad is not None:
            torch.testing.assert_close(found.grad, expected.grad, atol=2e-5, rtol=1e-4)


def test_gradient_caching_drops_the_same_units_both_times(sequences: list[WeightedTokens]) -> None:
    model = towers(0.5)
    torch.manual_seed(3)
    cached = CachedBatch(encoding(2), model.query, sequences)
    again = []
    original = Encoding.run

    def spy(self: Encoding, tower: torch.nn.Module, group: list[WeightedTokens]) -> torch.Tensor:
        again.append(original(self, tower, group))  # type: ignore[arg-type]
        return again[-1]

    cached.vectors.sum().backward()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoding, "run", spy)
        cached.backward()
    first = cached.vectors.detach()
    for vectors in torch.cat(again):
        assert any(torch.allclose(vectors, other, atol=1e-6) for other in first)
