"""Export: parity in every precision, on CUDA too, batch invariance, refusal, and the way back from ONNX to torch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from glow.artifact import QUERY_TOWER, verify
from glow.errors import BuildError, ExportError
from glow.nn import TowerConfig, TwoTowers
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, Weighting, WordPieces
from glow.training.checkpoint import read_towers
from glow_model_export.graph import export_graph, torch_source, torch_vectors
from glow_model_export.package import Source, export_model
from glow_model_export.parity import invariance

SCHEMA = FieldSchema.preset("glow-default")
FEW = [Document("d", {"title": ("honey bees",), "text": ("bees eat rice " * 40,)})]
TEXTS = ["bees", "how do honey bees find the way home", "x " * 40, "salt and water; rice!", "東京 café"]


SHAPES: dict[str, dict[str, Any]] = {
    "key": {"weight_side": "key"},
    "row": {"weight_side": "row"},
    "log": {"weight_form": "log", "pooling": "weighted"},
    "tanh": {"pooling": "tanh"},
    "deeper": {"weight_form": "log", "gain": 0.5, "document_layers": 3},
}


@pytest.fixture(scope="module", params=list(SHAPES))
def source(request: pytest.FixtureRequest, toy_model: Path) -> Source:
    """Random towers large enough for blocks of 128, with the toy vocabulary and term statistics."""
    pieces = WordPieces(toy_model / "vocab.txt")
    preprocessor = Preprocessor(pieces, SCHEMA, Weighting(), TermTable.load(toy_model / "terms"))
    torch.manual_seed(3)
    config = TowerConfig(
        vocabulary=pieces.size, hidden=128, layers=2, heads=4, intermediate=256, **SHAPES[request.param]
    )
    towers = TwoTowers(config, SCHEMA).eval()
    with torch.no_grad():
        for parameter in towers.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return torch_source(towers, preprocessor, {}, {})


@pytest.fixture(scope="module", params=["none", "int8", "fp16"])
def exported(
    request: pytest.FixtureRequest, source: Source, tmp_path_factory: pytest.TempPathFactory
) -> Model:
    out = tmp_path_factory.mktemp("models") / request.param
    export_model(source, out, request.param, TEXTS, FEW)
    return Model.open(out)


def test_a_model_encodes_what_torch_encodes(source: Source, exported: Model) -> None:
    """Float within 1e-4 of torch; smaller precisions within their cosine."""
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    assert source.reference is not None
    expected = source.reference(QUERY_TOWER, sequences)
    found = exported.encoder("query").encode(sequences)
    precision = exported.manifest.parameters["precision"]
    if precision == "none":
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert ((found * expected).sum(1) > 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=2e-3)


def test_batch_mates_and_padding_never_change_a_vector(exported: Model) -> None:
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    limit = 2e-3 if exported.manifest.parameters["precision"] == "fp16" else 1e-5
    assert invariance(exported.encoder("query"), sequences) < limit


def test_the_way_back_to_torch_gives_the_same_vectors(exported: Model) -> None:
    """ONNX → torch → vectors equals ONNX → vectors, but for the rounding of int8 activations."""
    towers = read_towers(exported)
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    found = torch_vectors(towers.query, sequences, 0)
    expected = exported.encoder("query").encode(sequences)
    limit = {"none": 1e-5, "int8": 0.02, "fp16": 5e-3}[str(exported.manifest.parameters["precision"])]
    assert np.abs(found - expected).max() < limit


def test_a_model_read_back_and_exported_again_is_the_same_model(source: Source, tmp_path: Path) -> None:
    """Towers that are the same bit for bit are not traced again here; the test below does."""
    export_model(source, tmp_path / "first", "none", TEXTS, FEW)
    first = Model.open(tmp_path / "first")
    again = torch_source(read_towers(first), first.preprocessor, {}, {})
    export_model(again, tmp_path / "again", "none", TEXTS, FEW)
    assert Model.open(tmp_path / "again").hash == first.hash


def test_a_tower_traced_again_is_the_same_graph() -> None:
    tower = TwoTowers(
        TowerConfig(vocabulary=50, hidden=16, layers=1, heads=2, intermediate=32), SCHEMA
    ).document
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    first, again = (export_graph(tower.eval()).SerializeToString() for _ in range(2))
    assert first == again


def test_towers_share_one_word_table_on_disk(exported: Model) -> None:
    for name in ("query.onnx", "document.onnx"):
        graph = onnx.load(exported.folder / name, load_external_data=False).graph
        table = next(tensor for tensor in graph.initializer if tensor.name == "words.weight")
        places = {entry.key: entry.value for entry in table.external_data}
        assert places["location"] == "words.bin"


def test_a_graph_names_no_files_but_its_own_and_the_shared_ones(exported: Model) -> None:
    for name in ("query", "document"):
        graph = onnx.load(exported.folder / f"{name}.onnx", load_external_data=False).graph
        named = {
            entry.value for t in graph.initializer for entry in t.external_data if entry.key == "location"
        }
        assert named == {"words.bin", f"{name}.bin"}
        assert (exported.folder / f"{name}.onnx").stat().st_size < 100_000


def test_a_graph_names_no_file_of_the_machine_that_exported_it(exported: Model) -> None:
    for name in ("query.onnx", "document.onnx"):
        assert b".py" not in (exported.folder / name).read_bytes()


def test_a_tower_that_differs_is_refused_and_leaves_nothing(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export is given a broken graph: one bias of the written file is changed."""
    save = onnx.save

    def broken(model: onnx.ModelProto, path: Path) -> None:
        bias = next(t for t in model.graph.initializer if t.name == "layers.1.output_norm.bias")
        bias.raw_data = (np.frombuffer(bias.raw_data, np.float32) + 0.3).astype(np.float32).tobytes()
        save(model, path)

    monkeypatch.setattr("glow_model_export.package.onnx.save", broken)
    with pytest.raises(ExportError, match="max difference"):
        export_model(source, tmp_path / "model", "none", TEXTS, FEW)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_model_is_not_overwritten(exported: Model, source: Source) -> None:
    with pytest.raises(BuildError, match="exists already"):
        export_model(source, exported.folder, "none")
    verify(exported.folder, "model")


def test_untrained_towers_say_why_they_cannot_be_exported(toy_model: Path) -> None:
    shape = TowerConfig(vocabulary=50, hidden=16, layers=2, heads=2, intermediate=32)
    with pytest.raises(ExportError, match="after training"):
        export_graph(TwoTowers(shape, SCHEMA).eval().query)


def test_an_encoder_needs_no_torch(exported: Model) -> None:
    encoder = Encoder(exported.folder / "query.onnx")
    assert encoder.dimensions == 128
    assert encoder.encode([]).shape == (0, 128)


@pytest.mark.gpu
@pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no CUDA provider",
)
def test_fp16_on_cuda_gives_the_vectors_of_float_on_the_cpu(toy_model: Path, tmp_path: Path) -> None:
    model = Model.open(toy_model)
    source = torch_source(read_towers(model), model.preprocessor, {}, {})
    for precision in ("none", "fp16"):
        export_model(source, tmp_path / precision, precision, TEXTS)
    tokens = [model.preprocessor.query(text) for text in TEXTS]
    expected = Model.open(tmp_path / "none").encoder("query").encode(tokens)
    found = Model.open(tmp_path / "fp16").encoder("query", "cuda").encode(tokens)
    assert float((found * expected).sum(-1).min()) > 0.999
