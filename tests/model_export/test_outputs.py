"""Further outputs: attention and directions of tokens beside the plain tower's vectors, as torch computes them."""

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

from glow.artifact import EXPLAIN_TOWERS, LEARNED_HEAD, TERMS_TOWER, learned_hash
from glow.cli import app
from glow.errors import ArtifactError, BuildError, ExportError, FormatError, MismatchError
from glow.nn import Tower, TowerConfig, TwoTowers
from glow.records import Document
from glow.runtime import TERMS, VECTOR, Encoder, LearnedHead, Model
from glow.runtime.explain import AttentionEncoder, Explainer
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces, is_punctuation, pad
from glow.training import read_towers
from glow.training.checkpoint import TrainedImpacts, load_impacts, save_impacts
from glow_model_export.graph import torch_source
from glow_model_export.outputs import add_head
from glow_model_export.package import add_attention, export_model
from glow_model_export.quantize import Quantization
from tests.learned_head import add_untrained_head, untrained_head

LONG = "the moon and the tides pull at the sea"
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
    export_model(torch_source(towers, preprocessor, {}, {}), out, precision)
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


def test_a_graph_without_attention_is_refused(toy_model: Path) -> None:
    model = onnx.load(toy_model / "query.onnx", load_external_data=False)
    for node in [node for node in model.graph.node if node.op_type == "Softmax"]:
        model.graph.node.remove(node)
    with pytest.raises(ExportError, match="no attention softmax"):
        add_attention(model)


@pytest.fixture
def model(tmp_path: Path, toy_model: Path) -> Path:
    """A copy of the toy model."""
    shutil.copytree(toy_model, tmp_path / "model")
    return tmp_path / "model"


def test_vectors_stay_and_the_hash_stays(model: Path, toy_model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    before, after = Model.open(toy_model), Model.open(model)
    assert before.hash == after.hash
    assert learned_hash(after.manifest.files) and learned_hash(before.manifest.files) is None
    sequences = [after.preprocessor.query(text) for text in [*TEXTS, LONG]]
    encoder = Encoder(model / TERMS_TOWER, after.preprocessor.pieces.pad_id)
    vectors, terms = encoder.run_outputs(sequences, [VECTOR, TERMS])
    assert np.array_equal(vectors, before.encoder("document").run(sequences))
    assert terms.shape[0] == 6 and terms.shape[2] == 16


def test_a_build_computes_what_was_trained(model: Path, tmp_path: Path) -> None:
    """Directions of tokens and words, gains and impacts are those of torch."""
    add_untrained_head(model, tmp_path / "checkpoint")
    opened, head = Model.open(model), load_impacts(tmp_path / "checkpoint").head
    ready = LearnedHead.load(model / LEARNED_HEAD)
    sequence = opened.preprocessor.query(LONG)
    states = read_towers(opened).document.states(
        torch.from_numpy(sequence.ids)[None], torch.ones(1, len(sequence), dtype=torch.long),
        torch.from_numpy(sequence.field_ids)[None], torch.from_numpy(sequence.weights)[None],
    )  # fmt: skip
    encoder = Encoder(model / TERMS_TOWER, opened.preprocessor.pieces.pad_id)
    (tokens,) = encoder.run_outputs([sequence], [TERMS])
    np.testing.assert_allclose(tokens, head.tokens(states).detach().numpy(), atol=2e-5)
    words = ["bees", "tides", "unheard"]
    directions, gains = ready.directions(words, opened.preprocessor, opened.encoder("query"))
    vectors = opened.encoder("query").encode([opened.preprocessor.query(word) for word in words])
    idf = [_idf(opened, word) for word in words]
    expected, raised = head.words(torch.from_numpy(vectors), torch.tensor(idf))
    np.testing.assert_allclose(directions, expected.detach().numpy(), atol=1e-5)
    every = torch.ones(tokens.shape[:2], dtype=torch.bool)
    impacts = head(expected, raised, torch.from_numpy(tokens), every) / head.bm25_weight
    nearest = (tokens[0] @ directions.T).max(0)
    found = gains * np.maximum(nearest - ready.cut, 0.0)
    np.testing.assert_allclose(found, impacts[:, 0].detach().numpy(), rtol=1e-4)


def _idf(model: Model, word: str) -> float:
    terms = model.preprocessor.terms
    df = min(max(terms.df(word), 1), terms.documents)
    return float(np.log(1 + (terms.documents - df + 0.5) / (df + 0.5)))


def test_a_head_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    trained = TrainedImpacts(untrained_head(32), "0" * 64, {"bees": 1.0}, {})
    save_impacts(tmp_path / "checkpoint", trained)
    with pytest.raises(MismatchError, match="train a head for this one"):
        add_head(model, tmp_path / "checkpoint", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_no_checkpoint_of_a_head_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        add_head(model, tmp_path, tmp_path / "new")
    with pytest.raises((ArtifactError, FormatError)):
        load_impacts(model)


def test_the_command_writes_a_model_with_a_head_in_place_of_another(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "one")
    first = Model.open(model)
    save_impacts(tmp_path / "two", TrainedImpacts(untrained_head(32, 1), first.hash, {"bees": 1.0}, {}))
    arguments = ["export-model", "--from-model", str(model), "--learned", str(tmp_path / "two"), "--out"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    second = Model.open(tmp_path / "new")
    changed = {name for name, record in second.manifest.files.items() if record != first.manifest.files[name]}
    assert changed == {TERMS_TOWER, LEARNED_HEAD} and second.hash == first.hash
    assert json.loads(done.stdout)["learned"] == learned_hash(second.manifest.files)
    for wrong in (["--quantize", "int8"], ["--token-size", "8"], ["--checkpoint", str(tmp_path / "one")]):
        assert CliRunner().invoke(app, [*arguments, str(tmp_path / "no"), *wrong]).exit_code == 2
    with pytest.raises(BuildError, match="exists already"):
        add_head(model, tmp_path / "two", tmp_path / "new")


def test_a_damaged_head_is_named(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    path = model / LEARNED_HEAD
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FormatError, match=LEARNED_HEAD):
        LearnedHead.load(path)
    with pytest.raises(ArtifactError, match=LEARNED_HEAD):
        Model.open(model)
