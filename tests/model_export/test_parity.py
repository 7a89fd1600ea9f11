"""Parity: what passes, that NaN never does, and that a precision is judged by the texts of the data that is given."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.collection import read_documents
from glow.errors import ExportError
from glow.runtime import Model
from glow.text import WeightedTokens
from glow.training import read_towers
from glow_model_export import parity
from glow_model_export.graph import torch_source
from glow_model_export.package import check_quality
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
    return found


def check(vectors: Vectors) -> parity.TowerParity:
    sequences: list[WeightedTokens] = [object()] * 3  # type: ignore[list-item]
    return check_parity(vectors["torch"], Path("float.onnx"), Path("shipped.onnx"), sequences, 0)


def test_equal_vectors_pass(vectors: Vectors) -> None:
    assert vectors.keys() == set(SIDES)
    found = check(vectors)
    assert (found.texts, found.max_difference, found.mean_cosine) == (3, 0.0, 1.0)


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
        check(vectors)


@pytest.fixture
def data(toy_corpus: Path, tmp_path: Path) -> Path:
    """The toy corpus with a query for each of its first ten documents."""
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(toy_corpus.read_bytes())
    documents = list(read_documents(toy_corpus, ("title",)))[:10]
    queries = [
        {"_id": f"q{at}", "text": f"about {each.fields['title'][0]}"} for at, each in enumerate(documents)
    ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"q{at}\t{each.id}\t1" for at, each in enumerate(documents)]
    (folder / "qrels" / "dev.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8"
    )
    return folder


def test_quality_is_judged_on_the_texts_that_are_given(
    data: Path, toy_model: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.open(toy_model)
    source = torch_source(read_towers(model), model.preprocessor, {}, {})
    documents = list(read_documents(toy_corpus, model.preprocessor.schema.names))[:10]
    monkeypatch.setattr(parity, "_made_up", lambda *_: pytest.fail("words were drawn at random"))
    quality = check_quality(source, "none", data, "dev", ["about bees"], documents)
    assert (quality["data"], quality["queries"]) == ("data", 10)
    assert set(quality["nDCG@10"]) == {"none"}
