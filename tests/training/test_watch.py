"""Dev retrieval: reciprocal ranks by hand, what is looked at, and what a run leaves of it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.text import Preprocessor
from glow.training.data import Collection
from glow.training.run import WatchConfig, read_metrics
from glow.training.towers import TrainConfig, Watch, WatchedTask, reciprocal_ranks
from tests.training.conftest import MakeTrainer

MakeConfig = Callable[..., TrainConfig]


def test_reciprocal_ranks_by_hand() -> None:
    scores = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]], np.float32)
    relevant = [frozenset({1}), frozenset({0}), frozenset({1, 2})]
    assert reciprocal_ranks(scores, relevant).tolist() == [0.5, pytest.approx(1 / 3), 1.0]
    assert reciprocal_ranks(scores, relevant, depth=2).tolist() == [0.5, 0.0, 1.0]


def test_what_is_looked_at_holds_every_relevant_document_and_never_changes(
    toy_collection: Collection,
    make_preprocessor: Callable[[TrainConfig], Preprocessor],
    make_config: MakeConfig,
    make_trainer: MakeTrainer,
    tmp_path: Path,
) -> None:
    collection, preprocessor = toy_collection, make_preprocessor(TrainConfig(name="x"))
    loss = make_trainer(make_config(), tmp_path).loss

    def looked_at(queries: int, documents: int) -> WatchedTask:
        config = WatchConfig(steps=1, queries=queries, documents=documents)
        return Watch([collection], preprocessor, config, 1, loss).tasks[0]

    first, again = looked_at(5, 4), looked_at(5, 4)
    assert len(first.queries) == 5
    assert first.relevant == again.relevant
    assert [len(document) for document in first.documents] == [len(document) for document in again.documents]
    assert all(relevant and max(relevant) < len(first.documents) for relevant in first.relevant)
    whole = looked_at(0, 0)
    assert (len(whole.queries), len(whole.documents)) == (len(collection.queries), len(collection.documents))


def test_a_run_folder_holds_configuration_and_metrics(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    trainer = make_trainer(make_config(optimizer={"max_steps": 12}), tmp_path / "run")
    losses = trainer.run()
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [10, 12]
    assert rows[-1]["loss"] == pytest.approx(losses[-1])
    assert rows[-1]["positive"] > rows[-1]["negative"] - 40.0
    assert rows[-1]["pairs_per_second"] > 0.0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["optimizer"]["max_steps"] == 12


def test_without_patience_watching_changes_nothing(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    watched = make_trainer(make_config(watch={"steps": 2}), tmp_path / "a", watch=True)
    alone = make_trainer(make_config(), tmp_path / "b")
    assert watched.run() == alone.run()
    for (name, found), expected in zip(
        watched.towers.named_parameters(), alone.towers.parameters(), strict=True
    ):
        assert torch.equal(found, expected), name
    assert not (tmp_path / "a" / "best.safetensors").exists()
