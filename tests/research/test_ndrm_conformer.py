"""Conformer layers: the paper's separable attention, and the repairs of the released code (docs/papers.md, rows 18, 19, 23)."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch.testing import assert_close

from research.ndrm_model import ConformerConfig, ConformerEncoder, separable_attention

KEYS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
VALUES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
Floats = NDArray[np.float64]
ALL = torch.ones(3, 1, dtype=torch.bool)
SMALL = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)


def encoder(**changes: object) -> ConformerEncoder:
    torch.manual_seed(0)
    config = ConformerConfig.model_validate(SMALL.model_dump() | changes)
    return ConformerEncoder(config, positions=400).eval()


def test_the_papers_formula() -> None:
    """Golden G7, worked out by hand."""
    shares = KEYS.softmax(0).T @ VALUES
    assert_close(shares, torch.tensor([[1.266956, 1.0], [1.0, 1.266956]]), atol=1e-6, rtol=0)
    scaled = separable_attention(KEYS, KEYS, VALUES, ALL, 2**-0.5)
    expected = [[1.178797, 1.088159], [1.088159, 1.178797], [1.133478, 1.133478]]
    assert_close(scaled, torch.tensor(expected), atol=1e-6, rtol=0)
    unscaled = separable_attention(KEYS, KEYS, VALUES, ALL)
    assert_close(unscaled[0], torch.tensor([1.195161, 1.071796]), atol=1e-6, rtol=0)


def test_a_masked_key_has_no_part() -> None:
    found = separable_attention(KEYS, KEYS, VALUES, torch.tensor([[True], [True], [False]]), 2**-0.5)
    expected = [[0.578450, 0.421550], [0.421550, 0.578450], [0.5, 0.5]]
    assert_close(found, torch.tensor(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("padding", [1, 30, 300])
def test_padding_changes_nothing(padding: int) -> None:
    """Row 19: the released code lets padding into the last tokens by its convolution."""
    made, tokens = encoder(), torch.randn(1, 9, 16)
    longer = torch.cat([tokens, torch.randn(1, padding, 16)], 1)
    mask = torch.arange(9 + padding)[None] < 9
    with torch.inference_mode():
        assert_close(made(longer, mask)[:, :9], made(tokens, mask[:, :9]), atol=1e-5, rtol=0)


def norm(x: Floats) -> Floats:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def shares(x: Floats, axis: int) -> Floats:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def test_a_whole_layer_in_numpy() -> None:
    """Positions, convolution, attention, both residuals, norms and the mixture of one layer with two heads (section 4.1)."""
    made = encoder(hidden=4, heads=2, window=3, layers=1).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    own = {name: value.detach().numpy() for name, value in made.named_parameters()}
    for name in own:
        if "norm" in name:
            dict(made.named_parameters())[name].data.fill_(float(name.endswith("weight")))
    embedded = np.random.default_rng(0).normal(size=(5, 4))
    angles = np.arange(5)[:, None] * np.array([1.0, 0.01])
    x = embedded + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(5, 4)

    def linear(name: str, given: Floats) -> Floats:
        return given @ own[f"layers.0.{name}.weight"].T + own[f"layers.0.{name}.bias"]

    padded, y = np.pad(x, ((1, 1), (0, 0))), np.zeros((5, 4))
    for out in range(4):
        group = slice(2 * (out // 2), 2 * (out // 2) + 2)
        for token in range(5):
            window = padded[token : token + 3, group]
            y[token, out] = (window.T * own["layers.0.convolution.weight"][out]).sum()
    y += own["layers.0.convolution.bias"]
    keys, values, found = linear("query", y), linear("value", y), np.zeros((5, 4))
    for head in (slice(0, 2), slice(2, 4)):
        found[:, head] = shares(keys[:, head] / np.sqrt(2), 1) @ (
            shares(keys[:, head], 0).T @ values[:, head]
        )
    x = norm(x + linear("output", found))
    x = norm(x + linear("outer", np.maximum(linear("inner", x), 0.0)))
    weights = own["mixture.weight"][0]
    wanted = weights[0] * embedded + weights[1] * x + own["mixture.bias"]
    seen = made(torch.from_numpy(embedded)[None], torch.ones(1, 5, dtype=torch.bool))[0]
    np.testing.assert_allclose(seen.detach().numpy(), wanted, atol=1e-5)


def test_the_order_of_tokens_counts_without_a_convolution() -> None:
    layers, x = encoder(window=0), torch.randn(1, 6, 16)
    mask, turned = torch.ones(1, 6, dtype=torch.bool), torch.arange(5, -1, -1)
    assert not torch.allclose(layers(x[:, turned], mask)[:, turned], layers(x, mask), atol=1e-3)


def test_a_single_token_is_encoded() -> None:
    assert torch.isfinite(encoder()(torch.randn(1, 1, 16), torch.ones(1, 1, dtype=torch.bool))).all()


def test_the_released_size() -> None:
    """393,728 parameters a layer at 256 with 32 heads and shared projections."""
    layer = ConformerEncoder(ConformerConfig(), positions=10).layers[0]
    assert sum(parameter.numel() for parameter in layer.parameters()) == 393_728


@pytest.mark.parametrize("changes", [{"heads": 3}, {"window": 4}, {"layers": 0}])
def test_a_shape_that_cannot_be_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        ConformerConfig.model_validate(SMALL.model_dump() | changes)
