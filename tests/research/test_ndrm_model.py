"""NDRM1 to NDRM3 and their Conformer layers: golden numbers, and what padding must not change (docs/papers.md, rows 18 to 23)."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from torch.testing import assert_close

from glow.options import StrictModel
from research.ndrm_model import (
    BatchScale,
    ConformerConfig,
    ConformerEncoder,
    KernelPooling,
    Ndrm,
    NdrmConfig,
    TermStatistics,
    kernel_sums,
    separable_attention,
)

CONFORMER = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)
KEYS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
VALUES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
Floats = NDArray[np.float64]
EVERY = torch.ones(3, 1, dtype=torch.bool)


def model(**changes: object) -> Ndrm:
    torch.manual_seed(0)
    config = {"words": 50, "embedding": 16, "conformer": CONFORMER, **changes}
    return Ndrm(NdrmConfig.model_validate(config)).eval()


def statistics(tf: Tensor, **changes: Tensor) -> TermStatistics:
    """Statistics of words that all have idf 2 in documents of ten words."""
    given = {"idf": torch.tensor(2.0), "length": torch.tensor(10.0), "mask": torch.tensor(True)} | changes
    return TermStatistics(tf, **given)


def test_kernels() -> None:
    """Golden G7: centres 1, .8, …, -.8; deviation .1."""
    at_one, between = kernel_sums(torch.tensor([[1.0], [0.55]]))[:, 0]
    assert_close(at_one[:3], torch.tensor([1.0, 0.135335, 0.000335]), atol=1e-6, rtol=0)
    assert_close(between[[1, 2, 3]], torch.tensor([0.043937, 0.882497, 0.324652]), atol=1e-6, rtol=0)
    assert kernel_sums(torch.tensor([-1.0])).max() < 0.14


def test_batch_scale_divides_by_the_mean_of_all_that_came() -> None:
    scale, real = BatchScale().train(), torch.ones(3, dtype=torch.bool)
    assert_close(scale(torch.tensor([1.0, 2.0, 3.0]), real), torch.tensor([0.5, 1.0, 1.5]), atol=1e-6, rtol=0)
    assert_close(scale(torch.tensor([5.0]), real[:1]), torch.tensor([1.818181]), atol=1e-6, rtol=0)
    scale.eval()
    assert_close(scale(torch.tensor([5.5]), real[:1]), torch.tensor([2.0]), atol=1e-5, rtol=0)
    assert float(scale.mean) == 2.75


def test_batch_scale_counts_real_slots_alone() -> None:
    """Row 21: a query of three words padded to five or twenty gives the same mean."""
    means = []
    for padding in (5, 20):
        scale, values = BatchScale().train(), torch.zeros(padding)
        values[:3] = torch.tensor([1.0, 2.0, 6.0])
        scale(values, torch.arange(padding) < 3)
        means.append(float(scale.mean))
    assert means == [3.0, 3.0]


def test_the_explicit_part() -> None:
    """Golden G7: tf 3 of mean .5, 120 words of mean 300, idf 4."""
    ndrm = model(kind="explicit")
    ndrm.explicit.tf.mean.fill_(0.5)
    ndrm.explicit.length.mean.fill_(300.0)
    given = TermStatistics(
        torch.tensor([3.0, 0.0]), torch.tensor(4.0), torch.tensor(120.0), torch.tensor(True)
    )
    found = ndrm.combine(None, given)
    assert float(found[0].detach()) == pytest.approx(3.749999, abs=2e-6)
    assert float(found[1].detach()) == 0.0


def latent(ndrm: Ndrm, words: Tensor, document: Tensor, length: int) -> Tensor:
    """Scores of words in a document whose first `length` words are real."""
    mask = (torch.arange(document.shape[-1]) < length)[None]
    with torch.inference_mode():
        return ndrm.latent(ndrm.query_words(words[None]), ndrm.document(document[None], mask), mask)[0]


@pytest.mark.parametrize("length", [1, 299, 300, 301, 390])
def test_a_document_scores_the_same_however_it_is_padded(length: int) -> None:
    """Row 20: to 400 or to 4,000 words."""
    ndrm, words = model(), torch.tensor([1, 2, 3])
    document = torch.randint(1, 50, (4000,))
    short, long = (latent(ndrm, words, document[:size], length) for size in (400, 4000))
    assert_close(short, long, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["explicit", "both"])
def test_padding_of_a_query_changes_nothing(kind: str) -> None:
    """Row 21, in training too, where norms take their statistics from the batch."""
    found = []
    for padding in (5, 20):
        ndrm = model(kind=kind).train()
        mask = torch.arange(padding) < 3
        tf = torch.zeros(2, padding)
        tf[:, :3] = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0]])
        scores = torch.zeros(2, padding)
        scores[:, :3] = torch.tensor([[0.5, 0.1, 0.2], [0.9, 0.3, 0.4]])
        found.append(ndrm.combine(scores if kind == "both" else None, statistics(tf, mask=mask)))
        assert not found[-1][:, 3:].any()
    assert_close(found[0][:, :3], found[1][:, :3])


def test_the_released_sizes() -> None:
    """856,324 parameters of NDRM1 without its word embeddings, 393,728 of a layer at 256 with 32 heads and shared projections."""
    ndrm = Ndrm(NdrmConfig(words=1, kind="latent"))
    assert sum(each.numel() for name, each in ndrm.named_parameters() if name != "words.weight") == 856_324
    layer = ConformerEncoder(ConformerConfig(), positions=10).layers[0]
    assert sum(parameter.numel() for parameter in layer.parameters()) == 393_728


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ValueError, match="needs statistics"):
        model().combine(torch.zeros(1, 3), None)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (NdrmConfig(words=3), {"window": 10, "stride": 20}),
        (CONFORMER, {"heads": 3}),
        (CONFORMER, {"window": 4}),
        (CONFORMER, {"layers": 0}),
    ],
)
def test_a_shape_that_cannot_be_is_refused(config: StrictModel, changes: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        type(config).model_validate(config.model_dump() | changes)


def test_a_score_over_two_windows_by_hand() -> None:
    """Sums of kernels in each window, their logarithms, a small network, and the best window (sections 4.2 and 5)."""
    pooling = model(window=3, stride=2, kernels=2).pooling
    cosines = torch.tensor([[[0.9, 0.1, -0.2, 0.3, 1.0]]])  # windows: words 0 to 2, and 2 to 4
    near = torch.stack([torch.exp(-((cosines[0, 0] - centre) ** 2) / 0.02) for centre in (1.0, 0.0)], 1)
    weights = {name: each.detach() for name, each in pooling.named_parameters()}
    scores = []
    for start in (0, 2):
        logs = torch.log(near[start : start + 3].sum(0) + 1e-6)
        inner = (weights["inner.weight"] @ logs + weights["inner.bias"]).clamp(min=0.0)
        scores.append(float(weights["outer.weight"][0] @ inner + weights["outer.bias"]))
    found = pooling(cosines, torch.ones(1, 1, 5, dtype=torch.bool))
    assert float(found.detach()) == pytest.approx(max(scores), abs=1e-5)
    assert abs(scores[0] - scores[1]) > 1e-3


def test_kernels_of_padding_do_not_count() -> None:
    """One kernel at cosine 1, a network that repeats its input: the logarithm of the sum over the real words alone."""
    pooling = KernelPooling(NdrmConfig(words=3, kernels=1, window=4, stride=2)).eval()
    with torch.no_grad():
        for part in (pooling.inner, pooling.outer):
            part.weight.zero_()
            part.bias.zero_()
        pooling.inner.weight[0, 0] = pooling.outer.weight[0, 0] = 1.0
        found = pooling(torch.tensor([[[1.0, 0.9, 1.0, 1.0]]]), torch.tensor([[[True, True, False, False]]]))
    assert float(found) == pytest.approx(math.log(1.0 + math.exp(-0.5)), abs=1e-5)


def test_both_parts_are_normalized_before_they_are_added() -> None:
    ndrm = model(kind="both")
    with torch.no_grad():
        ndrm.norm.running_mean.copy_(torch.tensor([1.0, -2.0]))  # type: ignore[operator]  # a buffer of BatchNorm
        ndrm.norm.running_var.copy_(torch.tensor([4.0, 9.0]))  # type: ignore[operator]  # a buffer of BatchNorm
    given = statistics(torch.tensor([3.0]))
    latent, explicit = torch.tensor([5.0]), ndrm.explicit(given)
    parts = torch.stack([(latent - 1.0) / 4.0**0.5, (explicit + 2.0) / 9.0**0.5], -1)
    assert_close(ndrm.combine(latent, given), ndrm.combined(parts).squeeze(-1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("embedding", [16, 24])
def test_words_start_nearest_to_themselves(embedding: int) -> None:
    ndrm, ids = model(kind="latent", embedding=embedding), torch.arange(1, 50)
    words = ndrm.query_words(ids)
    assert_close(words.norm(dim=-1), torch.ones(49))
    alone = ndrm.document(ids[:, None], torch.ones(49, 1, dtype=torch.bool))[:, 0]
    assert ((words @ alone.T).argmax(1) == torch.arange(49)).all()


def encoder(**changes: object) -> ConformerEncoder:
    torch.manual_seed(0)
    config = ConformerConfig.model_validate(CONFORMER.model_dump() | changes)
    return ConformerEncoder(config, positions=400).eval()


def test_the_papers_formula() -> None:
    """Golden G7, worked out by hand."""
    shares = KEYS.softmax(0).T @ VALUES
    assert_close(shares, torch.tensor([[1.266956, 1.0], [1.0, 1.266956]]), atol=1e-6, rtol=0)
    scaled = separable_attention(KEYS, KEYS, VALUES, EVERY, 2**-0.5)
    expected = [[1.178797, 1.088159], [1.088159, 1.178797], [1.133478, 1.133478]]
    assert_close(scaled, torch.tensor(expected), atol=1e-6, rtol=0)
    unscaled = separable_attention(KEYS, KEYS, VALUES, EVERY)
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


def test_a_single_token_is_encoded() -> None:
    assert torch.isfinite(encoder()(torch.randn(1, 1, 16), torch.ones(1, 1, dtype=torch.bool))).all()
