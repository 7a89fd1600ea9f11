"""A model in fp16 on CUDA gives the vectors that its float towers give on the CPU."""

from pathlib import Path

import onnxruntime
import pytest

from glow.runtime import Model
from glow.training import read_towers
from glow_model_export.package import Source, export_model

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA, reason="this onnxruntime has no CUDA provider"),
]
TEXTS = ["how do bees find the way home", "honey", "the tide follows the moon " * 4]


def test_fp16_on_cuda_gives_the_vectors_of_float_on_the_cpu(toy_model: Path, tmp_path: Path) -> None:
    model = Model.open(toy_model)
    source = Source(read_towers(model), model.preprocessor, {}, {})
    for precision in ("none", "fp16"):
        export_model(source, tmp_path / precision, precision, TEXTS)
    tokens = [model.preprocessor.query(text) for text in TEXTS]
    expected = Model.open(tmp_path / "none").encoder("query").encode(tokens)
    found = Model.open(tmp_path / "fp16").encoder("query", "cuda").encode(tokens)
    assert float((found * expected).sum(-1).min()) > 0.999
