"""A small run of towers: it learns, from batches that follow from seed and step alone, and is watched; its towers encode as a model does."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glow.collection import read_documents
from glow.errors import ArtifactNotFoundError, InputError, MismatchError
from glow.evaluation.corpus_index import DenseOptions
from glow.evaluation.retrievers import DenseRetriever
from glow.evaluation.task import Corpus
from glow.nn import TowerConfig, TwoTowers
from glow.records import Document, Query
from glow.runtime import Model
from glow.text.preprocessor import pad
from glow.training import read_towers, save_checkpoint
from glow.training.commands import read_stages
from glow.training.data import Collection, read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, Encoding, encode, open_source, vectors
from glow.training.impacts import ImpactsConfig
from glow.training.pretraining import PretrainConfig
from glow.training.rerank import RerankConfig
from glow.training.run import WatchConfig
from glow.training.towers import TrainConfig, Watch, WatchedTask, _go_on, reciprocal_ranks
from tests.training.conftest import MakeConfig, MakePreprocessor, MakeTrainer


@pytest.mark.parametrize(
    ("kind", "form", "precision"),
    [
        ("softmax", "multiply", "fp32"),
        ("softmax", "log", "fp32"),
        ("bce", "log", "fp32"),
        ("softmax", "multiply", "bf16"),  # through the written-out attention
    ],
)
def test_a_run_learns(
    kind: str, form: str, precision: str, make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    config = make_config(
        optimizer={"epochs": 8, "precision": precision},
        objective={"kind": kind, "scale": 5.0},
        towers={"weight_form": form},
    )
    losses = make_trainer(config, tmp_path).run()
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


@pytest.mark.parametrize("learns", [True, False])
def test_gains_learn_unless_their_rate_is_0(
    learns: bool, make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    towers: dict[str, Any] = {"weight_form": "log", "pooling": "weighted"}
    if not learns:
        towers |= {"weight_form": "plain", "pooling_gain": 1.0}
    options = {} if learns else {"gain_rate": 0.0}
    trainer = make_trainer(make_config(towers=towers, optimizer=options), tmp_path)
    trainer.run()
    gains = [parameter for name, parameter in trainer.towers.named_parameters() if name.endswith("gain")]
    assert len(gains) == (4 if learns else 2)
    assert all((gain != float(not learns)).any() == learns for gain in gains)


def test_hard_negatives_take_part(
    make_config: MakeConfig, make_trainer: MakeTrainer, toy_collection: Collection, tmp_path: Path
) -> None:
    """Of two mined documents a query, one is drawn an epoch; a query without any repeats its own, blocked."""
    mined = replace(
        toy_collection,
        negatives=[() if query % 3 == 0 else ((query + 7) % 50, (query + 9) % 50) for query in range(150)],
    )
    trainer = make_trainer(make_config(objective={"hard_negatives": 1}), tmp_path, collection=mined)
    drawn: set[tuple[int, int]] = set()
    for step in range(6 * 9):
        batch = trainer.batches.batch(step, 0, 1)
        assert batch.documents.shape == (32,)
        assert batch.relevant.shape == (16, 32)
        for row, query in enumerate(batch.queries.tolist()):
            extra = int(batch.documents[16 + row])
            assert extra in (mined.negatives[query] or (batch.documents[row],))  # type: ignore[index]
            assert batch.relevant[row, 16 + row] or query % 3
            drawn.add((query, extra))
    assert {((query + 7) % 50, (query + 9) % 50) for query in (1, 2)} == {
        tuple(sorted(extra for asked, extra in drawn if asked == query)) for query in (1, 2)
    }
    assert np.isfinite(trainer.run()).all()


def test_a_batch_depends_on_seed_and_step_alone(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    def queries(steps: range, **changes: int) -> list[list[int]]:
        batches = make_trainer(make_config(**changes), tmp_path).batches
        assert batches.steps(1) == 3 * 9
        return [batches.batch(step, 0, 1).queries.tolist() for step in steps]

    whole = queries(range(27))
    assert queries(range(13, 14)) == whole[13:14] != queries(range(13, 14), seed=1)
    assert len(np.unique(whole[:9])) == len(np.unique(whole[9:18])) == 144
    assert whole[:9] != whole[9:18]


def test_equal_texts_and_judged_pairs_count_as_relevant(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    batches = make_trainer(make_config(), tmp_path).batches
    for step in range(9):
        batch = batches.batch(step, 0, 1)
        same = batch.documents[:, None] == batch.documents[None, :]
        assert (batch.relevant >= same).all()
        assert not batch.relevant.all()


def test_training_goes_on_from_a_model_of_its_depth_with_its_own_options(
    make_config: MakeConfig, toy_model: Path
) -> None:
    """`--init models/NAME`: the towers come back from ONNX."""
    model = Model.open(toy_model)
    found, schema = read_towers(model), model.preprocessor.schema
    own = {"init_layers": [0, 1], "weight_side": "row", "pooling": "cls"}
    towers = _go_on(found, make_config(towers=own), schema)
    assert (towers.config.weight_side, towers.config.pooling) == ("row", "cls")
    for part in ("words", "document.layers.1.inner"):
        assert torch.equal(towers.get_submodule(part).weight, found.get_submodule(part).weight)
    with pytest.raises(MismatchError, match="2 layers"):
        _go_on(found, make_config(towers={"init_layers": [0, 1, 2]}), schema)


def test_a_split_that_is_not_there_is_refused(collection_folder: Path) -> None:
    with pytest.raises(InputError, match=r"none\.tsv"):
        read_collection(collection_folder, "none", TrainConfig(name="x").field_schema)


def test_shipped_configurations_are_valid_and_of_every_kind() -> None:
    root = Path(__file__).parents[2]
    files = [*(root / "configs").iterdir(), *(root / "research" / "papers").iterdir()]
    stages = [read_stages(file)[-1] for file in files]
    assert [stage.config.name for stage in stages] == [file.stem for file in files]
    assert {type(stage.config) for stage in stages} == {
        TrainConfig,
        RerankConfig,
        ImpactsConfig,
        PretrainConfig,
    }


def test_reciprocal_ranks_by_hand() -> None:
    scores = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]], np.float32)
    relevant = [frozenset({1}), frozenset({0}), frozenset({1, 2})]
    assert reciprocal_ranks(scores, relevant).tolist() == [0.5, pytest.approx(1 / 3), 1.0]
    assert reciprocal_ranks(scores, relevant, depth=2).tolist() == [0.5, 0.0, 1.0]


def test_what_is_watched_holds_every_relevant_document_and_never_changes(
    toy_collection: Collection,
    make_preprocessor: MakePreprocessor,
    make_config: MakeConfig,
    make_trainer: MakeTrainer,
    tmp_path: Path,
) -> None:
    collection, preprocessor = toy_collection, make_preprocessor(TrainConfig(name="x"))
    loss = make_trainer(make_config(), tmp_path).loss

    def watched(queries: int, documents: int) -> WatchedTask:
        config = WatchConfig(steps=1, queries=queries, documents=documents)
        return Watch([collection], preprocessor, config, 1, loss).tasks[0]

    first, again = watched(5, 4), watched(5, 4)
    assert len(first.queries) == 5
    assert first.relevant == again.relevant
    assert [len(document) for document in first.documents] == [len(document) for document in again.documents]
    assert all(relevant and max(relevant) < len(first.documents) for relevant in first.relevant)
    whole = watched(0, 0)
    assert (len(whole.queries), len(whole.documents)) == (len(collection.queries), len(collection.documents))


def test_without_patience_watching_changes_nothing(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    watched = make_trainer(make_config(watch={"steps": 2}), tmp_path / "a", watch=True)
    alone = make_trainer(make_config(), tmp_path / "b")
    assert watched.run() == alone.run()
    found, expected = (trial.towers.state_dict() for trial in (watched, alone))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not (tmp_path / "a" / "best.safetensors").exists()


@pytest.fixture(scope="module")
def documents(toy_corpus: Path, toy_model: Path) -> list[Document]:
    return list(read_documents(toy_corpus, Model.open(toy_model).preprocessor.schema.names))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "toy"
    model = Model.open(toy_model)
    save_checkpoint(folder, read_towers(model), model.preprocessor, {})
    return folder


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_batch_gives_what_single_texts_give(
    toy_model: Path, documents: list[Document], precision: str
) -> None:
    model = Model.open(toy_model)
    tower = read_towers(model).document
    sequences = [model.preprocessor.document(document) for document in documents]
    found = vectors(tower, sequences, model.preprocessor.pieces.pad_id, precision)
    assert found.dtype == np.float32
    assert found.shape == (len(documents), 32)
    alone = []
    for sequence in sequences:
        batch = pad([sequence], 0)
        arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
        with torch.no_grad():
            alone.append(tower(*map(torch.from_numpy, arrays))[0].numpy())
    np.testing.assert_allclose(found, np.stack(alone), atol=1e-5 if precision == "fp32" else 0.02)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)


def test_groups_of_like_length_keep_the_order_of_the_batch(
    toy_model: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.training.encode.GROUP_TEXTS", 3)
    model = Model.open(toy_model)
    tower, encoding = read_towers(model).document, Encoding(0, torch.device("cpu"), nullcontext)
    sequences = [model.preprocessor.document(document) for document in documents[:8]]
    with torch.no_grad():
        alone = torch.cat([encoding.run(tower, [sequence]) for sequence in sequences])
        torch.testing.assert_close(encode(encoding, tower, sequences), alone, atol=1e-6, rtol=0.0)


def test_a_tower_in_training_is_read_without_dropout_and_learns_on(toy_model: Path) -> None:
    model = Model.open(toy_model)
    own = model.preprocessor
    towers = TwoTowers(
        TowerConfig(vocabulary=own.pieces.size, hidden=16, layers=1, heads=2, intermediate=16, dropout=0.5),
        own.schema,
    ).train()
    sequences = [own.query("bees find home"), own.query("the moon")]
    first, second = (vectors(towers.query, sequences, own.pieces.pad_id) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert towers.query.training
    assert towers.query.dropout.training
    batch = pad(sequences, own.pieces.pad_id)
    with torch.autocast("cpu", torch.bfloat16):
        out = towers.query(*map(torch.from_numpy, (batch.ids, batch.mask, batch.field_ids, batch.weights)))
    out[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in towers.query.layers.parameters())


def test_a_checkpoint_searches_as_its_model_and_as_evaluation(
    toy_model: Path,
    checkpoint: Path,
    toy_corpus: Path,
    documents: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glow.training.encode.CHUNK_DOCUMENTS", 8)
    monkeypatch.setattr("glow.training.encode.CHUNK_QUERIES", 2)
    documents = documents[:20]  # other term statistics than the model's own
    lines = toy_corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "corpus.jsonl").write_text("".join(lines[:20]), encoding="utf-8")
    model = Model.open(toy_model)
    queries = [Query("a", "bees find home"), Query("b", "what about whales"), Query("none", " \t")]
    expected = DenseRetriever(
        model, Corpus(tmp_path, model.preprocessor.schema.names), DenseOptions()
    ).search(queries, 7)
    # The toy towers hardly use weights, so other term statistics change only the sixth digit.
    for folder, tolerance in ((toy_model, 1e-7), (checkpoint, 1e-4)):
        source = open_source(folder, EncodeOptions(precision="fp32"))
        found = EncodedCorpus(source, documents).search(queries, 7)
        assert found["none"] == expected["none"] == []
        for query in ("a", "b"):
            assert [hit.document_id for hit in found[query]] == [hit.document_id for hit in expected[query]]
            np.testing.assert_allclose(
                [hit.score for hit in found[query]], [hit.score for hit in expected[query]], atol=tolerance
            )


def test_a_folder_that_is_neither_model_nor_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError, match=r"neither a model .* nor a checkpoint"):
        open_source(tmp_path, EncodeOptions())
