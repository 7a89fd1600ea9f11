"""Explain graphs: the plain tower's vectors, torch's attention, in every precision; a model that gains them keeps its hash."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy import float32
from numpy.typing import NDArray
from typer.testing import CliRunner

from glow.artifact import read_manifest, verify
from glow.artifact.model import EXPLAIN_TOWERS, model_hash
from glow.cli import app
from glow.errors import ExportError
from glow.nn import Tower, TowerConfig, TwoTowers
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.runtime.explain import AttentionEncoder, Explainer
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces, is_punctuation, pad
from glow.training.from_model import read_towers
from glow_model_export.explain import add_attention, add_explain
from glow_model_export.package import Source, export_model
from glow_model_export.quantize import Quantization

TEXTS = ["bees", "how do honey bees find the way home", "x " * 40, "salt and water; rice!", "東京 café"]
CASES: dict[str, tuple[Quantization, dict[str, str]]] = {
    "float, weighted rows": ("none", {"weight_side": "row"}),
    "int8, logarithms": ("int8", {"weight_form": "log", "pooling": "weighted"}),
    "fp16, tanh": ("fp16", {"pooling": "tanh"}),
}


@pytest.fixture(scope="module", params=list(CASES))
def exported(
    request: pytest.FixtureRequest, toy_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Model:
    """Random towers whose last layer attends unevenly."""
    precision, shape = CASES[request.param]
    schema = FieldSchema.preset("glow-default")
    pieces = WordPieces(toy_model / "vocab.txt")
    preprocessor = Preprocessor(pieces, schema, Weighting(), TermTable.load(toy_model / "terms"))
    torch.manual_seed(3)
    config = TowerConfig(vocabulary=pieces.size, hidden=64, layers=2, heads=4, intermediate=128, **shape)
    towers = TwoTowers(config, schema).eval()
    with torch.no_grad():
        for parameter in towers.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        for tower in (towers.query, towers.document):
            torch.nn.init.normal_(tower.layers[-1].attention.qkv.weight, std=0.3)
    out = tmp_path_factory.mktemp("models") / "model"
    export_model(Source(towers, preprocessor, {}, {}), out, precision)
    return Model.open(out)


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


def test_vectors_are_bit_for_bit_those_of_the_plain_tower(exported: Model) -> None:
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    for plain, explained in EXPLAIN_TOWERS.items():
        expected = Encoder(exported.folder / plain).run(sequences)
        np.testing.assert_array_equal(
            AttentionEncoder(exported.folder / explained).run(sequences)[0], expected
        )


def test_attention_is_that_of_the_torch_tower(exported: Model) -> None:
    """Table 4's measure, as the case study takes it; towers in torch are read back, quantized as they are."""
    towers = read_towers(exported)
    limit = {"none": 1e-5, "int8": 0.02, "fp16": 2e-3}[str(exported.manifest.parameters["precision"])]
    sequences = [exported.preprocessor.query(text) for text in TEXTS]
    uneven = 0.0
    for tower, explained in zip((towers.query, towers.document), EXPLAIN_TOWERS.values(), strict=True):
        attention = AttentionEncoder(exported.folder / explained).run(sequences)[1]
        for tokens, row in zip(sequences, attention, strict=True):
            expected = token_scores(tower, tokens)
            np.testing.assert_allclose(row[: len(tokens)], expected, atol=limit)
            assert (row[len(tokens) :] == 0).all()
            uneven = max(uneven, float(expected.max() * len(tokens)))
    assert uneven > 1.5  # else any mean would pass


def test_words_get_what_the_case_study_gives_them(exported: Model) -> None:
    document = Document(
        "d", {"title": ("Honey bees!",), "anchor": ("zzz bees", "bees"), "text": ("bees eat rice",)}
    )
    found = Explainer(exported.folder, exported.preprocessor).explain_document(document)
    tokens = exported.preprocessor.document(document)
    sums, left_out = word_scores(token_scores(read_towers(exported).document, tokens), tokens)
    words: dict[str, float] = {}
    for term in found.terms:
        words[term.word] = words.get(term.word, 0.0) + term.attention
    limit = 0.02 if exported.manifest.parameters["precision"] == "int8" else 5e-3
    assert found.specials + words.pop("!") == pytest.approx(left_out, abs=limit)
    assert words == pytest.approx(sums, abs=limit)


def test_an_older_model_gains_the_graphs_and_keeps_hash_and_weights(exported: Model, tmp_path: Path) -> None:
    older = tmp_path / exported.folder.name
    shutil.copytree(exported.folder, older)
    manifest = read_manifest(older, "model")
    files = {name: record for name, record in manifest.files.items() if name not in EXPLAIN_TOWERS.values()}
    (older / "manifest.json").write_bytes(manifest.model_copy(update={"files": files}).to_bytes())
    for name in EXPLAIN_TOWERS.values():
        (older / name).unlink()
    assert Model.open(older).hash == exported.hash
    assert add_explain(older) == sum((older / name).stat().st_size for name in EXPLAIN_TOWERS.values())
    assert verify(older, "model").files == exported.manifest.files
    assert model_hash(verify(older, "model").files) == exported.hash
    assert not list(older.glob(".*"))


def test_the_command_adds_graphs_and_refuses_what_does_not_go_with_it(
    toy_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(toy_model, tmp_path / "toy-model")
    done = CliRunner().invoke(app, ["export-model", "--add-explain", str(model)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["explain_bytes"] > 0
    assert read_manifest(model, "model") == read_manifest(toy_model, "model")
    both = CliRunner().invoke(
        app, ["export-model", "--add-explain", str(model), "--out", str(tmp_path / "other")]
    )
    assert both.exit_code == 2
    assert "without the options of an export" in " ".join(both.stderr.split())
    assert CliRunner().invoke(app, ["export-model", "--from-model", str(model)]).exit_code == 2


def test_a_graph_without_attention_is_refused(toy_model: Path) -> None:
    model = onnx.load(toy_model / "query.onnx", load_external_data=False)
    for node in [node for node in model.graph.node if node.op_type == "Softmax"]:
        model.graph.node.remove(node)
    with pytest.raises(ExportError, match="no attention softmax"):
        add_attention(model)
