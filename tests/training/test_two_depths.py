"""Towers of two depths: trained apart, put together, averaged, and taught by the scores of hybrid search."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from glow.errors import MismatchError
from glow.nn import TowerConfig, TwoTowers, bert_config, minilm_folder
from glow.text import WordPieces, lexical_words
from glow.training import Given, train
from glow.training.checkpoint import load_checkpoint, save_checkpoint
from glow.training.data import Collection, PairBatches, topics_of
from glow.training.objective import Objective, ObjectiveConfig, Targets, lexical_part
from glow.training.teacher import Aims
from glow.training.towers import TrainConfig
from research.encoders.train import average
from tests.training.conftest import MakePreprocessor


@pytest.fixture(scope="module")
def alone(
    collection_folder: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Checkpoints by the side that learned alone."""
    folders = {side: tmp_path_factory.mktemp("alone") / side for side in ("query", "document")}
    towers = {"init_layers": [1], "document_layers": [0, 1], "weight_form": "log", "train_words": False}
    optimizer = {"batch_size": 16, "max_steps": 6, "learning_rate": 3e-3, "precision": "fp32"}
    parts = {"objective": {"kind": "none", "distill_weight": 1.0}, "optimizer": optimizer}
    for side, out in folders.items():
        config = TrainConfig.model_validate({"name": "alone", "towers": {**towers, "learns": side}, **parts})
        data = [collection_folder]
        train(config, Given(data=data, out=out, init=bert_folder, teacher=bert_folder, device="cpu"))
    return folders


def test_a_tower_that_learns_alone_leaves_the_other_as_it_is_and_both_can_be_put_together(
    alone: dict[str, Path], tmp_path: Path
) -> None:
    towers = {side: load_checkpoint(folder).towers for side, folder in alone.items()}
    assert (len(towers["query"].query.layers), len(towers["query"].document.layers)) == (1, 2)
    for side, other in (("query", "document"), ("document", "query")):
        learned, kept = towers[side].state_dict(), towers[other].state_dict()
        own = [name for name in learned if name.startswith(f"{side}.layers") and name.endswith("weight")]
        assert own
        assert not any(torch.equal(learned[name], kept[name]) for name in own)
    average(alone["query"], alone["document"], 0.0, 1.0, tmp_path / "both")
    both = load_checkpoint(tmp_path / "both")
    for side, source in towers.items():
        expected, found = getattr(source, side).state_dict(), getattr(both.towers, side).state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [part["query"] for part in both.report["averaged"]] == [1.0, 0.0]


def test_an_average_lies_between_and_other_towers_are_refused(alone: dict[str, Path], tmp_path: Path) -> None:
    first, second = alone.values()
    average(first, second, 0.25, 0.5, tmp_path / "mixed")
    folders = (first, second, tmp_path / "mixed")
    one, other, mixed = (load_checkpoint(each).towers.query.layers[0].inner.weight for each in folders)
    torch.testing.assert_close(mixed, 0.75 * one + 0.25 * other, atol=1e-6, rtol=0.0)
    preprocessor = load_checkpoint(first).preprocessor
    towers = TwoTowers(TowerConfig(vocabulary=5, hidden=16, heads=2), preprocessor.schema)
    save_checkpoint(tmp_path / "other", towers, preprocessor, {})
    with pytest.raises(MismatchError, match="differ in shape"):
        average(first, tmp_path / "other", 0.5, 0.5, tmp_path / "x")


def test_a_document_tower_may_be_deeper() -> None:
    assert TowerConfig(vocabulary=5, layers=3, document_layers=6).document.layers == 6
    assert TowerConfig(vocabulary=5, layers=3).document.layers == 3
    assert bert_config(minilm_folder(), layers=3, document_layers=6).document.layers == 6


def test_words_count_in_a_batch_as_in_a_hybrid_search(
    toy_collection: Collection, make_preprocessor: MakePreprocessor, toy_model: Path, tmp_path: Path
) -> None:
    """A document that shares words gets more, as BM25 times the query's openness says."""
    config = TrainConfig(name="words")
    pieces, schema = WordPieces(toy_model / "vocab.txt", config.weighting.unit), config.field_schema
    queries, documents = toy_collection.queries, toy_collection.documents
    vectors = unit(np.random.default_rng(0).normal(size=(len(queries) + len(documents), 8)))
    targets = Targets(*(Aims(vectors, rows) for rows in np.split(np.arange(len(vectors)), [len(queries)])))
    part = lexical_part(tmp_path / "words", toy_collection, schema, pieces, targets)
    batch = PairBatches([toy_collection], make_preprocessor(config), 16, 0).batch(0, 0, 1)
    scores = part(batch)
    assert scores.shape == (16, 16)
    for row, query in enumerate(batch.queries):
        for column, number in enumerate(batch.documents):
            words = set(lexical_words(documents[number], schema, pieces))
            assert scores[row, column] == 0.0 or words & set(pieces.words(queries[query]))
    assert (np.diag(scores) > 0).mean() > 0.9


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_batches_follow_topics_and_slips_come_as_often_as_asked(
    toy_collection: Collection, make_preprocessor: MakePreprocessor
) -> None:
    truth = np.arange(len(toy_collection.queries)) % 4
    preprocessor, options = (
        make_preprocessor(TrainConfig(name="topics")),
        {"typo_rate": 0.5, "topics": [truth]},
    )
    batches = PairBatches([toy_collection], preprocessor, 8, 0, **options)
    found = [batches.batch(step, 0, 1) for step in range(batches.steps(1))]
    topics = [set(truth[batch.queries]) for batch in found]
    assert all(len(topic) <= 2 for topic in topics)
    assert sum(len(topic) == 1 for topic in topics) > len(topics) / 2
    assert 0.3 < float(np.mean([batch.typos > 0 for batch in found])) < 0.7
    assert batches.batch(3, 0, 1).typos.tolist() == found[3].typos.tolist()
    changed = []
    for batch in found:
        for tokens, number, seed in zip(batches.queries_of(batch), batch.queries, batch.typos, strict=True):
            whole = batches.queries[0][int(number)]
            assert seed or tokens is whole
            changed += [tokens.ids.tolist() != whole.ids.tolist()] * bool(seed)
    assert sum(changed) > len(changed) / 2  # a query of short words alone has no typo


def test_topics_of_vectors_that_lie_apart_are_found() -> None:
    truth = np.repeat(np.arange(3), 40)
    vectors = unit(np.eye(3, 6)[truth] + 0.05 * np.random.default_rng(1).normal(size=(120, 6)))
    labels = topics_of(vectors, 3, seed=2)
    assert len({*zip(truth.tolist(), labels.tolist(), strict=True)}) == len(set(labels.tolist()))


def test_the_list_of_hybrid_scores_pulls_towards_documents_that_share_words() -> None:
    random = torch.Generator().manual_seed(1)
    queries = torch.nn.functional.normalize(torch.randn(4, 8, generator=random), dim=-1)
    documents = queries.flip(0).clone().requires_grad_()
    lexical = torch.zeros(4, 4)
    lexical[0, 2] = 1.0
    options = {"kind": "none", "list_weight": 1.0, "list_lexical": 1.0}
    objective, same = Objective(ObjectiveConfig.model_validate(options)), torch.eye(4, dtype=torch.bool)
    loss, _ = objective(queries, documents, same, (queries, queries), lexical)
    loss.backward()
    assert documents.grad is not None
    assert float(documents.grad[2] @ queries[0]) < 0.0  # a step against the gradient brings it nearer
    without, _ = objective(queries, documents, same, (queries, queries), torch.zeros(4, 4))
    assert float(without.detach()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        ("towers", {"learns": "query"}, "train_words needs learns 'both'"),
        ("batches", {"topics": 4}, "clusters of a teacher's vectors"),
        ("objective", {"list_lexical": 1.0}, "needs a list_weight above 0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(section: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainConfig.model_validate({"name": "x", section: options})
