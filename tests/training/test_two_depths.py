"""Towers of two depths: trained apart, put together, averaged, and taught by the scores of hybrid search."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.testing
from pydantic import ValidationError

from glow.cli import app
from glow.errors import MismatchError
from glow.nn import TowerConfig, TwoTowers, bert_config, minilm_folder
from glow.text import Preprocessor, WordPieces, lexical_words
from glow.training.checkpoint import load_checkpoint, save_checkpoint
from glow.training.data import Collection, PairBatches, topics_of
from glow.training.objective import Objective, ObjectiveConfig, Targets, lexical_part
from glow.training.teacher import Aims
from glow.training.towers import TrainConfig
from research.encoders.train import average

TOWERS = """
[towers]
init_layers = [1]
document_layers = [0, 1]
weight_form = "log"
train_words = false
"""
ALONE = """
name = "alone"
{towers}
learns = "{side}"
[objective]
kind = "none"
distill_weight = 1.0
[optimizer]
batch_size = 16
max_steps = 6
learning_rate = 3e-3
precision = "fp32"
"""


def run(*arguments: object) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def trained(tmp_path: Path, collection_folder: Path, bert_folder: Path) -> Callable[[str], Path]:
    """Trains one side alone and gives the checkpoint."""

    def train(side: str) -> Path:
        config = tmp_path / f"{side}.toml"
        config.write_text(ALONE.format(towers=TOWERS, side=side), encoding="utf-8")
        out = tmp_path / side
        done = run(
            *("train", "--config", config, "--data", collection_folder, "--out", out, "--device", "cpu"),
            *("--init", bert_folder, "--teacher", bert_folder, "--threads", 1),
        )
        assert done.exit_code == 0, done.output
        return out

    return train


def test_a_tower_that_learns_alone_leaves_the_other_as_it_is_and_both_can_be_put_together(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    folders = {side: trained(side) for side in ("query", "document")}
    towers = {side: load_checkpoint(folder).towers for side, folder in folders.items()}
    assert (len(towers["query"].query.layers), len(towers["query"].document.layers)) == (1, 2)
    for side, other in (("query", "document"), ("document", "query")):
        learned, kept = towers[side].state_dict(), towers[other].state_dict()
        own = [name for name in learned if name.startswith(f"{side}.layers")]
        assert own
        assert not any(torch.equal(learned[name], kept[name]) for name in own if name.endswith("weight"))
    average(folders["query"], folders["document"], 0.0, 1.0, tmp_path / "both")
    both = load_checkpoint(tmp_path / "both")
    for side, source in towers.items():
        expected, found = getattr(source, side).state_dict(), getattr(both.towers, side).state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [part["query"] for part in both.report["averaged"]] == [1.0, 0.0]


def test_an_average_lies_between_and_other_towers_are_refused(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    first, second = trained("query"), trained("document")
    average(first, second, 0.25, 0.5, tmp_path / "mixed")
    one, other, mixed = (load_checkpoint(f).towers.query for f in (first, second, tmp_path / "mixed"))
    name = "layers.0.inner.weight"
    parts = [tower.state_dict()[name] for tower in (one, other, mixed)]
    assert torch.allclose(parts[2], 0.75 * parts[0] + 0.25 * parts[1], atol=1e-6)
    assert load_checkpoint(second).towers.config.document_layers == 2
    other = tmp_path / "other"
    towers = TwoTowers(
        TowerConfig(vocabulary=5, hidden=16, heads=2), load_checkpoint(first).preprocessor.schema
    )
    save_checkpoint(other, towers, load_checkpoint(first).preprocessor, {})
    with pytest.raises(MismatchError, match="differ in shape"):
        average(first, other, 0.5, 0.5, tmp_path / "x")


def test_a_deeper_document_tower_needs_its_own_layers_and_a_table_both_may_learn() -> None:
    assert TowerConfig(vocabulary=5, layers=3, document_layers=6).document.layers == 6
    assert TowerConfig(vocabulary=5, layers=3).document.layers == 3
    assert bert_config(minilm_folder(), layers=3, document_layers=6).document.layers == 6
    with pytest.raises(ValidationError, match="train_words needs learns 'both'"):
        TrainConfig.model_validate({"name": "x", "towers": {"learns": "query"}})


def test_words_count_in_a_batch_as_in_a_hybrid_search(
    toy_collection: Collection,
    make_preprocessor: Callable[[TrainConfig], Preprocessor],
    toy_model: Path,
    tmp_path: Path,
) -> None:
    """A document that shares words gets more, as BM25 times the query's openness says; the list follows it."""
    config = TrainConfig(name="words")
    pieces, schema = WordPieces(toy_model / "vocab.txt", config.weighting.unit), config.field_schema
    random = np.random.default_rng(0)
    vectors = random.normal(size=(len(toy_collection.queries) + len(toy_collection.documents), 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    queries = len(toy_collection.queries)
    targets = Targets(*(Aims(vectors, rows) for rows in np.split(np.arange(len(vectors)), [queries])))
    part = lexical_part(tmp_path / "words", toy_collection, schema, pieces, targets)
    batches = PairBatches([toy_collection], make_preprocessor(config), 16, 0)
    batch = batches.batch(0, 0, 1)
    scores = part(batch)
    assert scores.shape == (16, 16)
    for row, query in enumerate(batch.queries):
        words = set(pieces.words(toy_collection.queries[query]))
        for column, number in enumerate(batch.documents):
            document = set(lexical_words(toy_collection.documents[number], schema, pieces))
            if not words & document:
                assert scores[row, column] == 0.0
    assert (np.diag(scores) > 0).mean() > 0.9


def test_batches_follow_topics_and_slips_come_as_often_as_asked(
    toy_collection: Collection, make_preprocessor: Callable[[TrainConfig], Preprocessor]
) -> None:
    config = TrainConfig(name="topics")
    truth = np.arange(len(toy_collection.queries)) % 4
    batches = PairBatches(
        [toy_collection], make_preprocessor(config), 8, 0, typo_rate=0.5, topics=[np.asarray(truth, np.int64)]
    )
    found = [batches.batch(step, 0, 1) for step in range(batches.steps(1))]
    topics = [set(truth[batch.queries]) for batch in found]
    assert all(len(topic) <= 2 for topic in topics)
    assert sum(len(topic) == 1 for topic in topics) > len(topics) / 2
    share = float(np.mean([batch.typos > 0 for batch in found]))
    assert 0.3 < share < 0.7
    assert [batches.batch(step, 0, 1).typos.tolist() for step in (3, 1)] == [
        found[step].typos.tolist() for step in (3, 1)
    ]
    batch = found[0]
    for row, tokens in enumerate(batches.queries_of(batch)):
        kept = batches.queries[0][int(batch.queries[row])]
        if batch.typos[row] == 0:
            assert tokens is kept
    changed = [
        tokens.ids.tolist() != batches.queries[0][int(number)].ids.tolist()
        for batch in found
        for tokens, number, seed in zip(batches.queries_of(batch), batch.queries, batch.typos, strict=True)
        if seed
    ]
    assert sum(changed) > len(changed) / 2  # a query of short words alone has no typo


def test_topics_of_vectors_that_lie_apart_are_found() -> None:
    random = np.random.default_rng(1)
    truth = np.repeat(np.arange(3), 40)
    vectors = np.eye(3, 6)[truth] + 0.05 * random.normal(size=(120, 6))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    labels = topics_of(vectors, 3, seed=2)
    assert len({(int(one), int(other)) for one, other in zip(truth, labels, strict=True)}) == len(set(labels))
    with pytest.raises(ValidationError, match="clusters of a teacher's vectors"):
        TrainConfig.model_validate({"name": "x", "batches": {"topics": 4}})


def test_the_list_of_hybrid_scores_pulls_towards_documents_that_share_words() -> None:
    queries = torch.nn.functional.normalize(
        torch.randn(4, 8, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    documents = queries.flip(0).clone().requires_grad_()
    lexical = torch.zeros(4, 4)
    lexical[0, 2] = 1.0
    options = {"kind": "none", "list_weight": 1.0, "list_lexical": 1.0}
    objective = Objective(ObjectiveConfig.model_validate(options))
    loss, _ = objective(queries, documents, torch.eye(4, dtype=torch.bool), (queries, queries), lexical)
    loss.backward()
    assert documents.grad is not None
    assert float(documents.grad[2] @ queries[0]) < 0.0  # a step against the gradient brings it nearer
    without, _ = objective(
        queries, documents, torch.eye(4, dtype=torch.bool), (queries, queries), torch.zeros(4, 4)
    )
    assert float(without.detach()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"list_lexical": 1.0}, "needs a list_weight above 0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ObjectiveConfig.model_validate(options)
