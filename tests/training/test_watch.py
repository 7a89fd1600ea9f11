"""Dev retrieval: reciprocal ranks by hand, what is looked at, early stopping and the best towers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.text import Preprocessor
from glow.training.config import TrainConfig, WatchConfig
from glow.training.data.dataset import Collection
from glow.training.loop import Trainer
from glow.training.run_folder import read_metrics
from glow.training.watch import Watch, reciprocal_ranks

MakeTrainer = Callable[..., Trainer]
MakeConfig = Callable[..., TrainConfig]


def test_reciprocal_ranks_by_hand() -> None:
    scores = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]], np.float32)
    relevant = [frozenset({1}), frozenset({0}), frozenset({1, 2})]
    assert reciprocal_ranks(scores, relevant).tolist() == [0.5, pytest.approx(1 / 3), 1.0]
    assert reciprocal_ranks(scores, relevant, depth=2).tolist() == [0.5, 0.0, 1.0]


def test_what_is_looked_at_holds_every_relevant_document_and_never_changes(
    toy_collection: Collection, make_preprocessor: Callable[[TrainConfig], Preprocessor]
) -> None:
    collection, preprocessor = toy_collection, make_preprocessor(TrainConfig(name="x"))
    config = WatchConfig(steps=1, queries=5, documents=4)
    first, again = (Watch([collection], preprocessor, config, seed=1).tasks[0] for _ in range(2))
    assert len(first.queries) == 5
    assert first.relevant == again.relevant
    assert [len(document) for document in first.documents] == [len(document) for document in again.documents]
    assert all(relevant and max(relevant) < len(first.documents) for relevant in first.relevant)
    whole = Watch([collection], preprocessor, WatchConfig(steps=1, queries=0, documents=0), seed=1).tasks[0]
    assert (len(whole.queries), len(whole.documents)) == (len(collection.queries), len(collection.documents))


def test_training_stops_when_dev_gets_no_better_and_ends_with_the_best_towers(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.2, 0.5, 0.4, 0.3, 0.9])
    seen = []

    def measure(self: Watch, towers: torch.nn.Module, precision: str, device: str) -> dict[str, float]:
        seen.append({name: tensor.clone() for name, tensor in towers.state_dict().items()})
        return {"toy": next(scores)}

    monkeypatch.setattr(Watch, "measure", measure)
    options = make_config(watch={"steps": 2, "patience": 2})
    trainer = make_trainer(options, tmp_path / "run", watch=True)
    losses = trainer.run()
    assert len(losses) == 8  # measured after 2, 4, 6, 8; the best was the second
    for name, tensor in trainer.towers.state_dict().items():
        assert torch.equal(tensor, seen[1][name]), name
    rows = [row for row in read_metrics(tmp_path / "run") if "dev" in row]
    assert [row["dev"]["toy"] for row in rows] == [0.2, 0.5, 0.4, 0.3]
    assert (tmp_path / "run" / "dev.png").stat().st_size > 1000
    # A run that stopped early stays stopped.
    again = make_trainer(options, tmp_path / "run", watch=True)
    assert again.run() == []


def test_a_run_folder_holds_configuration_metrics_and_pictures(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    trainer = make_trainer(make_config(optimizer={"max_steps": 12}), tmp_path / "run")
    losses = trainer.run()
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [10, 12]
    assert rows[-1]["loss"] == pytest.approx(losses[-1])
    assert rows[-1]["positive"] > rows[-1]["negative"] - 40.0
    assert rows[-1]["pairs_per_second"] > 0.0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["optimiser"]["max_steps"] == 12
    assert {"loss.png", "cosine.png"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert not (tmp_path / "run" / "dev.png").exists()


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
