"""What padding must not say in NDRM's pooling, by hand."""

import math

import pytest
import torch

from research.ndrm_model import KernelPooling, NdrmConfig


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
