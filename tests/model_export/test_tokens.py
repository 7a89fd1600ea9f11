"""Tokens for late interaction: the same vectors, torch's states, one projection for both towers."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from glow.artifact import DOCUMENT_TOWER, EXPLAIN_TOWERS, QUERY_TOWER, TOKEN_PROJECTION
from glow.artifact.model import model_hash, query_side_files
from glow.errors import ArtifactError, ExportError
from glow.nn import TowerConfig, TwoTowers
from glow.nn.towers import Tower
from glow.runtime import ATTENTION, TOKENS, VECTOR, Encoder, Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces, pad
from glow.training import read_towers
from glow_model_export.package import Source, export_model
from glow_model_export.parity import check_tokens, parity_texts
from glow_model_export.quantize import Quantization
from glow_model_export.tokens import TOKEN_UNIT, add_tokens, fit_projection, read_projection, write_tokens

TEXTS = ["bees", "how do honey bees find the way home", "x " * 40, "salt and water; rice!", "東京 café"]
TOWERS = (QUERY_TOWER, DOCUMENT_TOWER)
CASES: dict[str, tuple[Quantization, dict[str, str]]] = {
    "float, weighted rows": ("none", {"weight_side": "row"}),
    "int8, logarithms": ("int8", {"weight_form": "log", "pooling": "weighted"}),
    "fp16, tanh": ("fp16", {"pooling": "tanh"}),
}


@pytest.fixture(scope="module", params=list(CASES))
def source(request: pytest.FixtureRequest, toy_model: Path) -> tuple[Source, Quantization]:
    """Random towers, and their precision."""
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
    return Source(towers, preprocessor, {}, {}), precision


@pytest.fixture(scope="module")
def plain(source: tuple[Source, Quantization], tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The towers, exported without tokens."""
    out = tmp_path_factory.mktemp("models") / "plain"
    report = export_model(source[0], out, source[1], token_size=0)
    assert report["tokens"] == {} and not (out / TOKEN_PROJECTION).exists()
    return Model.open(out)


@pytest.fixture(scope="module")
def added(source: tuple[Source, Quantization], tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The same with tokens of 24 numbers."""
    out = tmp_path_factory.mktemp("added") / "model"
    export_model(source[0], out, source[1], token_size=24)
    return Model.open(out)


def torch_tokens(
    tower: Tower, sequence: WeightedTokens, projection: NDArray[np.float32]
) -> NDArray[np.float32]:
    batch = pad([sequence], 0)
    arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
    with torch.inference_mode():
        states = tower.states(*(torch.from_numpy(array) for array in arrays)).float()
        found: NDArray[np.float32] = functional.normalize(states @ torch.from_numpy(projection), dim=-1)[
            0
        ].numpy()
    return found


def sequences_of(model: Model) -> list[WeightedTokens]:
    return [model.preprocessor.query(text) for text in TEXTS]


def projection_of(model: Model) -> NDArray[np.float32]:
    projection = read_projection(model.folder, model.encoder("query").dimensions)
    assert projection is not None
    return projection


def test_vectors_stay_bit_for_bit_and_tokens_have_length_one(plain: Model, added: Model) -> None:
    sequences = sequences_of(added)
    for tower in ("query", "document"):
        before, after = plain.encoder(tower), added.encoder(tower)
        assert (before.token_size, after.token_size) == (None, 24)
        vectors, tokens = after.run_tokens(sequences)
        np.testing.assert_array_equal(vectors, before.run(sequences))
        np.testing.assert_array_equal(after.run(sequences), vectors)
        assert tokens.shape == (len(TEXTS), max(map(len, sequences)), 24)
        np.testing.assert_allclose(np.linalg.norm(tokens, axis=-1), 1.0, atol=1e-4)


def test_explain_graphs_have_attention_and_tokens(plain: Model, added: Model) -> None:
    sequences = sequences_of(added)
    for tower, name in EXPLAIN_TOWERS.items():
        before = Encoder(plain.folder / name).run_outputs(sequences, [VECTOR, ATTENTION])
        *after, tokens = Encoder(added.folder / name).run_outputs(sequences, [VECTOR, ATTENTION, TOKENS])
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(tokens, Encoder(added.folder / tower).run_tokens(sequences)[1])


def test_tokens_are_the_states_of_torch_projected(added: Model) -> None:
    towers, projection = read_towers(added), projection_of(added)
    precision = str(added.manifest.parameters["precision"])
    for tower, name in ((towers.query, QUERY_TOWER), (towers.document, DOCUMENT_TOWER)):
        encoder = Encoder(added.folder / name)
        for sequence in sequences_of(added):
            expected, found = torch_tokens(tower, sequence, projection), encoder.run_tokens([sequence])[1][0]
            assert ((expected * found).sum(-1) > 0.98).all()
            if precision == "none":
                np.testing.assert_allclose(found, expected, atol=2e-5)


def test_padding_and_batch_mates_move_no_token(added: Model) -> None:
    limit = 5e-3 if added.manifest.parameters["precision"] == "fp16" else 1e-5
    sequences = sequences_of(added)
    for tower in ("query", "document"):
        encoder = added.encoder(tower)
        together = encoder.run_tokens(sequences)[1]
        for row, sequence in zip(together, sequences, strict=True):
            alone = encoder.run_tokens([sequence])[1][0]
            np.testing.assert_allclose(row[: len(sequence)], alone, atol=limit)


def test_both_graphs_name_one_projection_outside_of_them(plain: Model, added: Model) -> None:
    for name in TOWERS:
        graph = onnx.load(added.folder / name, load_external_data=False).graph
        (tensor,) = (each for each in graph.initializer if each.name == "late.projection")
        places = {entry.key: entry.value for entry in tensor.external_data}
        assert places == {"location": TOKEN_PROJECTION, "offset": "0", "length": str(64 * 24 * 4)}
        assert (added.folder / name).stat().st_size < (plain.folder / name).stat().st_size + 2000


def test_a_projection_keeps_what_is_longest_in_both_towers(plain: Model) -> None:
    texts = parity_texts(plain.preprocessor)
    fitted = fit_projection(plain.folder, texts, 16, 0)
    matrix = fitted.matrix.astype(np.float64)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(16), atol=1e-5)
    assert matrix[np.abs(matrix).argmax(0), np.arange(16)].min() > 0
    whole = fit_projection(plain.folder, texts, 1000, 0)
    assert whole.matrix.shape == (64, 64) and whole.kept == pytest.approx(1.0)
    np.testing.assert_allclose(np.abs(whole.matrix[:, :16]), np.abs(fitted.matrix), atol=1e-5)
    if plain.manifest.parameters["precision"] == "none":  # torch has other states than towers in few bits
        noise, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 16)))
        assert _kept(plain, noise) < fitted.kept == pytest.approx(_kept(plain, matrix), abs=1e-4)
    again = fit_projection(plain.folder, texts, 16, 0)
    assert again.matrix.tobytes() == fitted.matrix.tobytes()
    assert not list(plain.folder.glob(".*"))


def _kept(model: Model, columns: NDArray[np.float64]) -> float:
    """Share of normalised states' squared length, worked out from torch's states one by one."""
    towers, texts, shares = read_towers(model), parity_texts(model.preprocessor), []
    whole = np.eye(64, dtype=np.float32)
    for tower, name in ((towers.query, QUERY_TOWER), (towers.document, DOCUMENT_TOWER)):
        states = np.concatenate([torch_tokens(tower, each, whole) for each in texts[name]])
        shares.append(float(((states @ columns) ** 2).sum(1).mean()))
    return float(np.mean(shares))


def test_a_model_with_tokens_is_another_model_and_reads_back_as_the_same_towers(
    plain: Model, added: Model
) -> None:
    assert added.hash != plain.hash
    assert model_hash(added.manifest.files) == added.hash == added.manifest.hashes["model"]
    assert added.manifest.counts == {**plain.manifest.counts, "token_size": 24}
    assert TOKEN_PROJECTION in query_side_files(added.manifest.files)
    assert TOKEN_PROJECTION not in query_side_files(plain.manifest.files)
    same = {name for name in plain.manifest.files if name not in (*TOWERS, *EXPLAIN_TOWERS.values())}
    for name in same - {"report.json"}:
        assert added.manifest.files[name] == plain.manifest.files[name]
    one, other = read_towers(plain).state_dict(), read_towers(added).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_changed_projection_is_noticed(added: Model, tmp_path: Path) -> None:
    model = shutil.copytree(added.folder, tmp_path / "model")
    (model / TOKEN_PROJECTION).write_bytes(bytes(64 * 24 * 4))
    with pytest.raises(ArtifactError, match=TOKEN_PROJECTION):
        Model.open(model)


def test_an_export_of_a_model_keeps_its_projection_unless_another_size_is_asked_for(
    toy_model: Path, tmp_path: Path
) -> None:
    model = Model.open(toy_model)
    source = Source(read_towers(model), model.preprocessor, {}, {}, projection_of(model))
    kept = export_model(source, tmp_path / "kept", "fp16", TEXTS)
    assert (tmp_path / "kept" / TOKEN_PROJECTION).read_bytes() == (toy_model / TOKEN_PROJECTION).read_bytes()
    assert kept["tokens"]["size"] == 16 and "kept" not in kept["tokens"]
    assert all(each["mean_cosine"] > 0.999 for each in kept["tokens"]["parity"].values())
    fitted = export_model(source, tmp_path / "fitted", "none", TEXTS, token_size=128)
    assert fitted["tokens"]["size"] == 32  # the towers have no more
    assert all(each["max_difference"] < 1e-5 for each in fitted["tokens"]["parity"].values())


def test_tokens_that_are_not_torchs_are_refused(toy_model: Path) -> None:
    model = Model.open(toy_model)
    tower, other = read_towers(model).query, np.roll(projection_of(model), 1, axis=1)
    paths = (toy_model / QUERY_TOWER, toy_model / QUERY_TOWER)
    assert check_tokens(tower, projection_of(model), *paths, sequences_of(model), 0)["mean_cosine"] > 0.999
    with pytest.raises(ExportError, match="tokens differ from the trained tower's"):
        check_tokens(tower, other, *paths, sequences_of(model), 0)


def _graph_without_states(folder: Path) -> None:
    graph = onnx.load(folder / QUERY_TOWER, load_external_data=False)
    for tensor in graph.graph.initializer:
        tensor.name = tensor.name.replace("layers.", "levels.")
    add_tokens(graph, np.eye(32, dtype=np.float32))


def _zeros(folder: Path) -> None:
    model = Model.open(folder)
    export_model(
        Source(read_towers(model), model.preprocessor, {}, {}), folder / "plain", "none", token_size=0
    )
    texts: dict[str, Sequence[WeightedTokens]] = {**parity_texts(model.preprocessor)}
    write_tokens(folder / "plain", np.zeros((32, 8), np.float32), texts, 0)


def _half_a_file(folder: Path) -> None:
    (folder / TOKEN_PROJECTION).write_bytes(bytes(32 * TOKEN_UNIT * 4 - 4))
    read_projection(folder, 32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_graph_without_states, "graph has no token embeddings"),
        (_zeros, r"query\.onnx: tokens have length 1 only within 1"),
        (_half_a_file, r"tokens\.bin holds 255 numbers, expected a multiple of 256"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str, toy_model: Path, tmp_path: Path) -> None:
    assert callable(make)
    with pytest.raises(ExportError, match=message):
        make(shutil.copytree(toy_model, tmp_path / "model"))
