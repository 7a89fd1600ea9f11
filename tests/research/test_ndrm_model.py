"""NDRM1 to NDRM3: golden numbers, query term independence, and what padding must not change (docs/papers.md, rows 20 to 23)."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.testing import assert_close

from research.ndrm_model import (
    BatchScale,
    ConformerConfig,
    KernelPooling,
    Ndrm,
    NdrmConfig,
    TermStatistics,
    kernel_sums,
)

CONFORMER = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)


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


def test_a_word_adds_the_same_whatever_else_the_query_holds() -> None:
    """Query term independence (section 4.3)."""
    ndrm, document = model(), torch.randint(1, 50, (30,))
    together = latent(ndrm, torch.tensor([4, 9, 17]), document, 30)
    alone = torch.stack([latent(ndrm, torch.tensor([word]), document, 30)[0] for word in (4, 9, 17)])
    assert_close(together, alone, atol=1e-6, rtol=0)


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


def test_broadcast_and_paired_scores_are_the_same() -> None:
    """Every word against every document at once, as an index is made, or each pair for itself."""
    ndrm = model()
    documents, lengths = torch.randint(1, 50, (3, 40)), [40, 7, 1]
    mask = torch.arange(40)[None] < torch.tensor(lengths)[:, None]
    words = torch.arange(1, 6)
    with torch.inference_mode():
        at_once = ndrm.latent(ndrm.query_words(words)[None], ndrm.document(documents, mask), mask)
    for row, length in enumerate(lengths):
        assert_close(at_once[row], latent(ndrm, words, documents[row], length), atol=1e-5, rtol=0)


def test_the_released_size() -> None:
    """856,324 parameters of NDRM1 without its word embeddings."""
    ndrm = Ndrm(NdrmConfig(words=1, kind="latent"))
    assert sum(each.numel() for name, each in ndrm.named_parameters() if name != "words.weight") == 856_324


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ValueError, match="needs statistics"):
        model().combine(torch.zeros(1, 3), None)
    with pytest.raises(ValidationError, match="words would be left out"):
        NdrmConfig(words=3, window=10, stride=20)


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
