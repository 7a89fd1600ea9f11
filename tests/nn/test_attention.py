"""Weighted attention: the golden numbers, and the fused form against the written-out one."""

import numpy as np
import pytest
import torch

from glow.encoders import MASKED_LOGIT, WeightForm, WeightSide
from glow.nn import TowerConfig, TwoTowers, WeightedSelfAttention
from glow.schema import FieldSchema

# Computed with numpy, independently of torch, logits already scaled.
LOGITS = torch.tensor([[1.0, 0, 2], [0, 1, -1], [2, 1, 0]])
WEIGHTS = torch.tensor([[1.0, 2, 0.5]])
VALUES = torch.tensor([[1.0, 0], [0, 1], [1, 1]])
PLAIN = [[0.244728, 0.090031, 0.665241], [0.244728, 0.665241, 0.090031], [0.665241, 0.244728, 0.090031]]
KEY = [[0.422319, 0.155362, 0.422319], [0.111166, 0.821409, 0.067425], [0.468311, 0.468311, 0.063379]]
ROW = [[0.244728, 0.090031, 0.665241], [0.117310, 0.866813, 0.015876], [0.506480, 0.307196, 0.186324]]
KEY_OUTPUT = [[0.844638, 0.577681], [0.178591, 0.888834], [0.531689, 0.531689]]
ROW_OUTPUT = [[0.909969, 0.755272], [0.133187, 0.882690], [0.692804, 0.493520]]
MASKED_ROWS = [[0.731059, 0.268941, 0], [0.119203, 0.880797, 0]]


def weighted_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    weights: torch.Tensor,
    mask: torch.Tensor,
    side: WeightSide,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as in the paper, softmax(W * QK^T / sqrt(d) + mask) V, and its probabilities."""
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    logits = logits * (weights[:, None, None, :] if side == "key" else weights[:, None, :, None])
    probabilities = (logits + (~mask[:, None, None, :]) * MASKED_LOGIT).softmax(-1)
    return probabilities @ v, probabilities


def golden(weights: torch.Tensor, side: WeightSide, mask: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Feeds logits through q = logits, k = sqrt(d)·identity, so that q·k / sqrt(d) gives them back."""
    q = LOGITS[None, None]
    k = torch.eye(3)[None, None] * 3**0.5
    output, probabilities = weighted_attention(q, k, VALUES[None, None], weights, torch.tensor([mask]), side)
    return output[0, 0].numpy(), probabilities[0, 0].numpy()


@pytest.mark.parametrize(("side", "expected", "output"), [("key", KEY, KEY_OUTPUT), ("row", ROW, ROW_OUTPUT)])
def test_g1_weighted_logits(side: WeightSide, expected: list, output: list) -> None:
    found, probabilities = golden(WEIGHTS, side, [True] * 3)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(found, output, atol=1e-5)


@pytest.mark.parametrize("side", ["key", "row"])
def test_g1_weights_of_one_are_plain_attention(side: WeightSide) -> None:
    output, probabilities = golden(torch.ones(1, 3), side, [True] * 3)
    np.testing.assert_allclose(probabilities, PLAIN, atol=1e-5)
    np.testing.assert_allclose(
        output, [[0.909969, 0.755272], [0.334759, 0.755272], [0.755272, 0.334759]], atol=1e-5
    )


@pytest.mark.parametrize(("side", "third"), [("key", [0.5, 0.5, 0]), ("row", [0.622459, 0.377541, 0])])
def test_g1_padding_is_masked_after_weighting(side: WeightSide, third: list) -> None:
    """Rows 1 and 2 of the golden are given for equal weights of the first two keys' rows: see their note."""
    _, probabilities = golden(WEIGHTS, side, [True, True, False])
    assert (probabilities[:, 2] == 0.0).all()
    np.testing.assert_allclose(probabilities[2], third, atol=1e-5)
    np.testing.assert_allclose(probabilities[:2], MASKED_ROWS, atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 30.0])
@pytest.mark.parametrize("side", ["key", "row"])
def test_padded_keys_get_nothing_whatever_their_weight(side: WeightSide, weight: float) -> None:
    _, probabilities = golden(torch.tensor([[1.0, 2.0, weight]]), side, [True, True, False])
    assert (probabilities[:, 2] == 0.0).all()


def test_a_weight_of_zero_makes_a_uniform_row() -> None:
    """A real zero stays zero (the released code turns it into 1)."""
    _, probabilities = golden(torch.tensor([[1.0, 0.0, 1.0]]), "row", [True] * 3)
    np.testing.assert_allclose(probabilities[1], [1 / 3] * 3, atol=1e-6)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three sequences of nine tokens, the second padded after five."""
    torch.manual_seed(0)
    bias = torch.zeros(3, 1, 1, 9)
    bias[1, ..., 5:] = MASKED_LOGIT
    return torch.randn(3, 9, 48), torch.rand(3, 9) * 4 + 0.1, bias


@pytest.mark.parametrize("side", ["key", "row"])
def test_fused_module_equals_the_written_out_form(side: WeightSide) -> None:
    """Scaling K or Q before fused attention is exact."""
    module = WeightedSelfAttention(48, 4, side).eval()
    x, weights, bias = inputs()
    q, k, v = (module._split(part) for part in module.qkv(x).chunk(3, -1))
    attended, _ = weighted_attention(q, k, v, weights, bias[:, 0, 0] == 0.0, side)
    expected = module.output(module._join(attended))
    torch.testing.assert_close(module(x, weights, bias), expected, atol=1e-5, rtol=1e-5)


def test_the_sides_are_equal_for_constant_weights() -> None:
    key, row = WeightedSelfAttention(16, 2, "key").eval(), WeightedSelfAttention(16, 2, "row").eval()
    row.load_state_dict(key.state_dict())
    x, bias, constant = torch.randn(2, 5, 16), torch.zeros(2, 1, 1, 5), torch.full((2, 5), 1.7)
    torch.testing.assert_close(key(x, constant, bias), row(x, constant, bias))


def test_content_weights_reach_cls_in_one_layer_on_the_key_side_only() -> None:
    """On the row side [CLS] attends by its own weight alone (docs/papers.md, row 1)."""
    outputs = {}
    for side in ("key", "row"):
        torch.manual_seed(1)
        module = WeightedSelfAttention(16, 2, side).eval()  # type: ignore[arg-type]
        x, bias, ones = torch.randn(1, 6, 16), torch.zeros(1, 1, 1, 6), torch.ones(1, 6)
        varied = torch.tensor([[1.0, 3.0, 0.2, 1.0, 2.0, 0.5]])
        outputs[side] = (module(x, ones, bias)[0, 0], module(x, varied, bias)[0, 0])
    assert torch.equal(*outputs["row"])
    assert not torch.allclose(*outputs["key"], atol=1e-4)


def test_logarithms_multiply_attention_by_a_power_of_the_weight() -> None:
    """softmax(a + g log w) is softmax(a) times w ** g, brought back to a sum of 1."""
    module = WeightedSelfAttention(48, 4, "key", form="log", gain=0.5).eval()
    x, weights, bias = inputs()
    plain = module.probabilities(x, torch.ones_like(weights), bias)
    expected = plain * weights.sqrt()[:, None, None, :]
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(module.probabilities(x, weights, bias), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("form", ["log", "plain"])
def test_new_forms_start_as_plain_attention(form: str) -> None:
    """As towers are built, nothing set by hand."""
    config = TowerConfig(
        vocabulary=9, hidden=48, layers=2, heads=4, intermediate=8, weight_form=form, gain=0.0
    )
    module = TwoTowers(config, FieldSchema.preset("glow-default")).query.layers[1].attention.eval()
    plain = WeightedSelfAttention(48, 4, "key").eval()
    plain.load_state_dict(module.state_dict(), strict=False)
    x, weights, bias = inputs()
    expected = plain(x, torch.ones_like(weights), bias)
    torch.testing.assert_close(module(x, weights, bias), expected, atol=1e-5, rtol=1e-5)


def test_a_weight_of_zero_has_a_finite_logarithm() -> None:
    x, weights, bias = inputs()
    weights[:, 2] = 0.0
    # A gain of 0 times an infinite logarithm would not be a number.
    still = WeightedSelfAttention(48, 4, "key", form="log", gain=0.0).eval()
    assert torch.isfinite(still(x, weights, bias)).all()
    module = WeightedSelfAttention(48, 4, "key", form="log", gain=1.0).eval()
    found = module.probabilities(x, weights, bias)
    assert torch.isfinite(found).all()
    assert (found[..., 2] < 0.02).all()


@pytest.mark.parametrize(("side", "form"), [("key", "multiply"), ("row", "multiply"), ("key", "log")])
def test_the_written_out_form_of_bf16_equals_the_fused_one(side: WeightSide, form: WeightForm) -> None:
    module = WeightedSelfAttention(48, 4, side, form=form, gain=0.5)
    x, weights, bias = inputs()
    fused = module(x, weights, bias)
    with torch.autocast("cpu", torch.bfloat16):
        written = module(x, weights, bias)
    assert written.dtype == torch.bfloat16
    torch.testing.assert_close(written.float(), fused, atol=0.02, rtol=0.05)
    losses = [out.float().square().sum() for out in (fused, written)]
    one, other = (torch.autograd.grad(loss, module.qkv.weight)[0].flatten() for loss in losses)
    assert torch.nn.functional.cosine_similarity(one, other, dim=0) > 0.999
