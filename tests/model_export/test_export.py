"""Export: parity in every precision, on CUDA too, batch invariance, attention, refusal, and the way back from ONNX to torch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy import float32
from numpy.typing import NDArray

from glow.artifact import EXPLAIN_TOWERS, QUERY_TOWER, verify
from glow.errors import BuildError, ExportError
from glow.nn import Tower, TowerConfig, TwoTowers
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.runtime.explain import AttentionEncoder, Explainer
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces, is_punctuation, pad
from glow.training.checkpoint import read_towers
from glow_model_export.graph import export_graph, torch_source, torch_vectors
from glow_model_export.package import Source, add_attention, export_model
from glow_model_export.parity import invariance
from glow_model_export.quantize import Quantization

SCHEMA = FieldSchema.preset("glow-default")
FEW = [Document("d", {"title": ("honey bees",), "text": ("bees eat rice " * 40,)})]
TEXTS = ["bees", "how do honey bees find the way home", "x " * 40, "salt and water; rice!", "東京 café"]
CASES: dict[str, tuple[Quantization, dict[str, Any]]] = {
    "key": ("none", {"weight_side": "key"}),
    "row": ("none", {"weight_side": "row"}),
    "tanh": ("none", {"pooling": "tanh"}),
    "int8": ("int8", {"weight_form": "log", "pooling": "weighted"}),
    "fp16": ("fp16", {"weight_form": "log", "gain": 0.5, "document_layers": 3}),
}
"""Tracing a graph takes seconds: each shape of towers is traced once, and checked in float against torch by the export itself."""


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def towers(case: str, toy_model: Path) -> TwoTowers:
    """Random towers large enough for blocks of 128, whose last layer attends unevenly."""
    torch.manual_seed(3)
    size = WordPieces(toy_model / "vocab.txt").size
    config = TowerConfig(vocabulary=size, hidden=128, layers=2, heads=4, intermediate=256, **CASES[case][1])
    found = TwoTowers(config, SCHEMA).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        for tower in (found.query, found.document):
            torch.nn.init.normal_(tower.layers[-1].attention.qkv.weight, std=0.2)
    return found


@pytest.fixture(scope="module")
def source(towers: TwoTowers, toy_model: Path) -> Source:
    pieces, terms = WordPieces(toy_model / "vocab.txt"), TermTable.load(toy_model / "terms")
    return torch_source(towers, Preprocessor(pieces, SCHEMA, Weighting(), terms), {}, {})


@pytest.fixture(scope="module")
def exported(case: str, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Model:
    out = tmp_path_factory.mktemp("models") / case
    export_model(source, out, CASES[case][0], TEXTS, FEW)
    return Model.open(out)


def limit(model: Model, **limits: float) -> float:
    """The one of the model's precision."""
    return limits[str(model.manifest.parameters["precision"])]


def test_a_model_encodes_what_torch_encodes(source: Source, exported: Model) -> None:
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    expected = source.reference(QUERY_TOWER, sequences)
    found = exported.encoder("query").encode(sequences)
    np.testing.assert_allclose(found, expected, atol=limit(exported, none=1e-4, int8=1.0, fp16=0.01))
    assert ((found * expected).sum(1) > 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=2e-3)


def test_batch_mates_and_padding_never_change_a_vector(exported: Model) -> None:
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    assert invariance(exported.encoder("query"), sequences) < limit(exported, none=1e-5, int8=1e-5, fp16=2e-3)


def test_the_way_back_to_torch_gives_the_same_vectors(exported: Model, towers: TwoTowers) -> None:
    """ONNX → torch → vectors equals ONNX → vectors, but for the rounding of int8 activations."""
    found = read_towers(exported)
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    difference = torch_vectors(found.query, sequences, 0) - exported.encoder("query").encode(sequences)
    assert np.abs(difference).max() < limit(exported, none=1e-5, int8=0.02, fp16=5e-3)
    assert found.config == towers.config
    if exported.manifest.parameters["precision"] == "none":
        expected = towers.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())


def test_a_tower_traced_again_is_the_same_graph() -> None:
    config = TowerConfig(vocabulary=50, hidden=16, layers=1, heads=2, intermediate=32)
    tower = TwoTowers(config, SCHEMA).document.eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    first, again = (export_graph(tower).SerializeToString() for _ in range(2))
    assert first == again


def test_untrained_towers_say_why_they_cannot_be_exported() -> None:
    shape = TowerConfig(vocabulary=50, hidden=16, layers=2, heads=2, intermediate=32)
    with pytest.raises(ExportError, match="after training"):
        export_graph(TwoTowers(shape, SCHEMA).eval().query)


def test_towers_share_one_word_table_and_name_no_other_file(exported: Model) -> None:
    for name in ("query", "document"):
        path = exported.folder / f"{name}.onnx"
        graph = onnx.load(path, load_external_data=False).graph
        files = {
            tensor.name: entry.value
            for tensor in graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        assert files["words.weight"] == "words.bin"
        assert set(files.values()) == {"words.bin", f"{name}.bin"}
        assert path.stat().st_size < 100_000
        assert b".py" not in path.read_bytes()  # no file of the machine that exported it


@pytest.mark.parametrize("case", ["key"], indirect=True)
def test_a_tower_that_differs_is_refused_and_leaves_nothing(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bias of the written file is changed."""
    save = onnx.save

    def broken(model: onnx.ModelProto, path: Path) -> None:
        bias = next(t for t in model.graph.initializer if t.name == "layers.1.output_norm.bias")
        bias.raw_data = (np.frombuffer(bias.raw_data, np.float32) + 0.3).astype(np.float32).tobytes()
        save(model, path)

    monkeypatch.setattr("glow_model_export.package.onnx.save", broken)
    with pytest.raises(ExportError, match="max difference"):
        export_model(source, tmp_path / "model", "none", TEXTS, FEW)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", ["key"], indirect=True)
def test_an_existing_model_is_not_overwritten(exported: Model, source: Source) -> None:
    with pytest.raises(BuildError, match="exists already"):
        export_model(source, exported.folder, "none")
    verify(exported.folder, "model")


def test_an_encoder_of_no_text_gives_no_vector(exported: Model) -> None:
    encoder = Encoder(exported.folder / "query.onnx")
    assert encoder.encode([]).shape == (0, encoder.dimensions) == (0, 128)


def test_vectors_beside_attention_are_bit_for_bit_those_of_the_plain_tower(exported: Model) -> None:
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    for plain, explained in EXPLAIN_TOWERS.items():
        vectors = AttentionEncoder(exported.folder / explained).run(sequences)[0]
        np.testing.assert_array_equal(vectors, Encoder(exported.folder / plain).run(sequences))


def token_scores(tower: Tower, tokens: WeightedTokens) -> NDArray[float32]:
    """Attention of each token from [CLS] in torch's last layer, averaged over heads."""
    batch = pad([tokens], 0)
    inputs = [torch.from_numpy(part) for part in (batch.ids, batch.mask, batch.field_ids, batch.weights)]
    with torch.inference_mode():
        return tower.attention(*inputs)[0].mean(0)[0].numpy()


def word_scores(scores: NDArray[float32], tokens: WeightedTokens) -> tuple[dict[str, float], float]:
    """Sums by word, and the sum of [CLS], [SEP] and punctuation."""
    sums: dict[str, float] = {}
    left_out = 0.0
    for score, number in zip(scores.tolist(), tokens.word_ids.tolist(), strict=True):
        if number >= 0 and not is_punctuation(tokens.words[number]):
            sums[tokens.words[number]] = sums.get(tokens.words[number], 0.0) + score
        else:
            left_out += score
    return sums, left_out


def test_attention_is_that_of_the_torch_tower(exported: Model) -> None:
    """As a case study takes it; towers in torch are read back, quantized as they are."""
    towers, sequences = read_towers(exported), [exported.preprocessor.query(text) for text in TEXTS]
    uneven = 0.0
    for tower, explained in zip((towers.query, towers.document), EXPLAIN_TOWERS.values(), strict=True):
        attention = AttentionEncoder(exported.folder / explained).run(sequences)[1]
        for tokens, row in zip(sequences, attention, strict=True):
            expected = token_scores(tower, tokens)
            tolerance = limit(exported, none=1e-5, int8=0.02, fp16=2e-3)
            np.testing.assert_allclose(row[: len(tokens)], expected, atol=tolerance)
            assert (row[len(tokens) :] == 0).all()
            uneven = max(uneven, float(expected.max() * len(tokens)))
    assert uneven > 1.5  # else any mean would pass


def test_words_get_the_attention_of_their_tokens(exported: Model) -> None:
    document = Document(
        "d", {"title": ("Honey bees!",), "anchor": ("zzz bees", "bees"), "text": ("bees eat rice",)}
    )
    found = Explainer(exported.folder, exported.preprocessor).explain_document(document)
    tokens = exported.preprocessor.document(document)
    sums, left_out = word_scores(token_scores(read_towers(exported).document, tokens), tokens)
    words: dict[str, float] = {}
    for term in found.terms:
        words[term.word] = words.get(term.word, 0.0) + term.attention
    tolerance = limit(exported, none=5e-3, int8=0.02, fp16=5e-3)
    assert found.specials + words.pop("!") == pytest.approx(left_out, abs=tolerance)
    assert words == pytest.approx(sums, abs=tolerance)


def test_a_graph_without_attention_is_refused(toy_model: Path) -> None:
    model = onnx.load(toy_model / "query.onnx", load_external_data=False)
    for node in [node for node in model.graph.node if node.op_type == "Softmax"]:
        model.graph.node.remove(node)
    with pytest.raises(ExportError, match="no attention softmax"):
        add_attention(model)


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
