"""Training of the re-ranker: candidates, losses, compressor, and what it makes of a ranking."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glow.collection import read_qrels
from glow.errors import ConfigError, MismatchError
from glow.evaluation import evaluate
from glow.nn import Compressor, CrossConfig, CrossEncoder, Side, load_weights
from glow.options import merged
from glow.text import Preprocessor, WordPieces
from glow.training import Given, train
from glow.training.data import Collection, count_terms
from glow.training.rerank import (
    CandidateBatches,
    Candidates,
    RerankConfig,
    RerankScores,
    Texts,
    TrainedReranker,
    attention_loss,
    initial_cross_encoder,
    load_reranker,
    read_candidates,
    read_side,
    rerank_loss,
    score_candidates,
)

SMALL = {
    "name": "toy",
    "query_tokens": 16,
    "document_tokens": 48,
    "checkpoint_steps": 4,
    "cross": {"init_layers": [0, 1], "split": 1, "compressed": 8, "late": 8, "dropout": 0.1},
    "objective": {"negatives": 3, "depth": 10},
    "optimizer": {"batch_size": 8, "max_steps": 8, "learning_rate": 1e-3, "precision": "fp32"},
}


def config(**changes: Any) -> RerankConfig:
    return RerankConfig.model_validate(merged(SMALL, changes))


@pytest.fixture(scope="session")
def given(collection_folder: Path, run_file: Path, bert_folder: Path) -> Given:
    return Given(data=[collection_folder], candidates=[run_file], out=Path(), init=bert_folder, device="cpu")


def trains(given: Given, out: Path, made: RerankConfig, **changes: Any) -> TrainedReranker:
    train(made, replace(given, out=out, **changes))
    return load_reranker(out)


@pytest.fixture(scope="session")
def trained(given: Given, tmp_path_factory: pytest.TempPathFactory) -> TrainedReranker:
    """A model that has seen each query a few times."""
    made = config(
        cross={"dropout": 0.0, "train_words": True, "compressed": 0, "late": 16},
        optimizer={"max_steps": 150, "epochs": 20, "learning_rate": 5e-3, "head_rate": 4.0},
    )
    return trains(given, tmp_path_factory.mktemp("rerank") / "toy", made)


def test_a_trained_model_orders_candidates_better_than_the_search(
    trained: TrainedReranker, candidates: Candidates, collection_folder: Path
) -> None:
    qrels = list(read_qrels(collection_folder / "qrels" / "train.tsv"))
    texts = Texts(candidates.collection, trained.preprocessor)
    scores = score_candidates(trained.model, texts, candidates, trained.preprocessor.pieces.pad_id)
    first, alone, mixed = (
        evaluate(run, qrels, ["RR@10"]).means["RR@10"]
        for run in (RerankScores(candidates, candidates.scores).run(0.0), scores.run(0.0), scores.run(1.0))
    )
    assert first < 0.5
    assert alone > first + 0.2
    assert mixed > first


def test_scores_of_stored_documents_are_those_of_the_whole_model(
    trained: TrainedReranker, candidates: Candidates
) -> None:
    pad_id, texts = trained.preprocessor.pieces.pad_id, Texts(candidates.collection, trained.preprocessor)
    scores = score_candidates(trained.model, texts, candidates, pad_id).scores[3]
    ids, mask, _, weights = read_side([texts.query(3)], pad_id, torch.device("cpu"))
    documents = [texts.document(row) for row in candidates.rows[3].tolist()]
    with torch.inference_mode():
        expected = trained.model([ids, mask, weights], read_side(documents, pad_id, torch.device("cpu")))
    np.testing.assert_allclose(scores, expected.numpy(), atol=1e-4)


def test_a_document_has_no_cls_of_its_own(toy_collection: Collection, bert_folder: Path) -> None:
    made = config()
    schema, pieces = made.field_schema, WordPieces(bert_folder / "vocab.txt", made.weighting.unit)
    preprocessor = Preprocessor(pieces, schema, made.weighting, count_terms([toy_collection], schema, pieces))
    texts = Texts(toy_collection, preprocessor)
    whole = preprocessor.document(toy_collection.documents[0])
    assert texts.document(0).ids.tolist() == whole.ids.tolist()[1:]
    assert pieces.cls_id not in texts.document(0).ids
    assert texts.query(0).ids[0] == pieces.cls_id


class _Identity(Compressor):
    """A compressor that changes nothing."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states


def _sides(model: CrossEncoder) -> tuple[Side, Side]:
    torch.manual_seed(3)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    shape = (2, 4, model.config.hidden)
    return tuple(Side(torch.randn(shape), mask, torch.ones(2, 4)) for _ in range(2))  # type: ignore[return-value]


def test_the_compressor_is_trained_towards_attention_as_it_was(bert_folder: Path) -> None:
    """Row 30: an identity costs nothing, the compressor alone has gradients, and padding has no part in it."""
    made = config(objective={"kind": "attention"}, cross={"dropout": 0.0})
    model = initial_cross_encoder(made, bert_folder).eval()
    query, document = _sides(model)
    loss = attention_loss(model, query, document)
    assert float(loss.detach()) > 0
    padded = query.states.clone()
    padded[0, 3] = 100.0
    torch.testing.assert_close(attention_loss(model, query._replace(states=padded), document), loss)
    model.compressor = _Identity(model.config.hidden, 8)
    assert float(attention_loss(model, query, document).detach()) == 0.0


def test_every_joined_layer_counts_in_the_compressors_loss() -> None:
    """Table 1: the mean of the layers' squared changes, over real tokens."""
    shape = {"hidden": 16, "layers": 3, "split": 1, "heads": 2, "intermediate": 32, "compressed": 4}
    torch.manual_seed(0)
    model = CrossEncoder(
        CrossConfig(vocabulary=60, query_tokens=8, document_tokens=8, fields=1, dropout=0.0, **shape)
    ).eval()
    query, document = _sides(model)
    mask = torch.cat([query.mask, document.mask], 1)
    changes = []
    restored = model.attentions(model.through(query), model.through(document))
    for was, now in zip(model.attentions(query, document), restored, strict=True):
        squares = ((now - was) ** 2).mean(1)  # over heads
        changes.append(torch.cat([squares[at][own][:, own].flatten() for at, own in enumerate(mask)]).mean())
    assert len(changes) > 1
    loss = attention_loss(model, query, document)
    torch.testing.assert_close(loss, torch.stack(changes).mean())
    assert abs(float(loss.detach()) - float(changes[0].detach())) > 1e-9


def test_a_run_of_the_compressor_changes_it_alone_and_the_next_goes_on_from_it_with_as_many_layers(
    given: Given, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("ranker", "compressor", "both")]
    first = trains(given, places[0], config(cross={"compressed": 0}))
    second = trains(given, places[1], config(objective={"kind": "attention"}), init=places[0])
    assert second.report["steps"] == 8
    words = load_weights(given.init)["embeddings.word_embeddings.weight"]
    assert np.array_equal(first.model.words.weight.detach(), words), "train_words is off"
    before, after = (each.model.state_dict() for each in (first, second))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name.split(".")[0] for name in after.keys() - before.keys()} == {"compressor"}
    assert trains(given, places[2], config(), init=places[1]).model.config.compressed == 8
    with pytest.raises(MismatchError, match=r"'layers': 2.*requires.*'layers': 3"):
        trains(given, tmp_path / "three", config(cross={"init_layers": [0, 1, 1]}), init=places[2])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"objective": {"kind": "attention"}, "cross": {"compressed": 0}},
            "needs .cross. compressed above 0",
        ),
        ({"cross": {"split": 2}}, "split 2 of 2 layers"),
        ({"objective": {"kind": "pairwise"}}, "one negative, found negatives 3"),
        ({"fields": "nothing"}, "nothing"),
    ],
)
def test_configurations_that_mean_nothing_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**changes)


def test_runs_and_folders_must_come_in_pairs(given: Given, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found 1 --data and 0 --candidates"):
        trains(given, tmp_path / "out", config(), candidates=())


def test_candidates_are_the_first_of_each_query_in_order(toy_collection: Collection, run_file: Path) -> None:
    found = read_candidates(run_file, toy_collection, 4)
    assert {len(rows) for rows in found.rows} == {4}
    assert all((np.diff(scores) < 0).all() for scores in found.scores)


def test_a_run_of_another_collection_is_refused(toy_collection: Collection, tmp_path: Path) -> None:
    path = tmp_path / "other.trec"
    for line, said in (
        ("nobody Q0 bees 1 0.5 t", "holds no query of toy"),
        ("a0 Q0 nothing 1 0.5 t", "'nothing', which toy does not have"),
    ):
        path.write_text(line + "\n", encoding="utf-8")
        with pytest.raises(MismatchError, match=said):
            read_candidates(path, toy_collection, 10)


def test_a_batch_has_the_relevant_document_first_and_no_other_that_is(candidates: Candidates) -> None:
    batches = CandidateBatches([candidates], 8, 3, seed=1)
    seen: list[int] = []
    for step in range(batches.steps(1)):
        batch = batches.batch(step, 0, 1)
        seen += batch.queries.tolist()
        rows = zip(batch.queries.tolist(), batch.documents.tolist(), batch.scores.tolist(), strict=True)
        for query, documents, scores in rows:
            relevant = candidates.collection.relevant[query]
            assert [row in relevant for row in documents] == [True, False, False, False]
            assert len(set(documents)) == 4
            ranked = dict(
                zip(candidates.rows[query].tolist(), candidates.scores[query].tolist(), strict=True)
            )
            assert [ranked[row] for row in documents] == scores
    assert len(seen) == len(set(seen)) == 8 * batches.steps(1)
    assert 0 not in seen, "its relevant document was not found"


def test_candidates_without_a_relevant_document_are_refused(candidates: Candidates) -> None:
    none = Candidates(candidates.collection, [rows[:0] for rows in candidates.rows], candidates.scores)
    with pytest.raises(MismatchError, match="no query has a relevant document and 3 others"):
        CandidateBatches([none], 8, 3, seed=0)


@pytest.mark.parametrize(
    ("kind", "logits", "expected"),
    [
        # The released code's loss: 1 - e^2 / (e^2 + e^1); a relevant document that leads by much costs nothing.
        ("pairwise", [[2.0, 1.0]], 0.268941),
        ("pairwise", [[0.0, 0.0], [100.0, 0.0]], 0.25),
        ("list", [[0.0, 0.0, 0.0, 0.0]], 1.386294),
        ("list", [[2.0, 1.0]], 0.313262),
    ],
)
def test_the_loss_has_the_value_worked_out_by_hand(
    kind: str, logits: list[list[float]], expected: float
) -> None:
    assert float(rerank_loss(torch.tensor(logits), kind)) == pytest.approx(expected, abs=1e-5)
