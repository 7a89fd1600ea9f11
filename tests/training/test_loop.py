"""A whole small run of towers: it learns, from batches that follow from seed and step alone, and its checkpoint comes back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.errors import InputError
from glow.text import Preprocessor
from glow.training.checkpoint import load_checkpoint, save_checkpoint
from glow.training.commands import read_stages
from glow.training.data import Collection, read_collection
from glow.training.towers import TrainConfig
from tests.training.conftest import MakeTrainer

MakeConfig = Callable[..., TrainConfig]


@pytest.mark.parametrize("kind", ["softmax", "bce"])
@pytest.mark.parametrize("form", ["multiply", "log"])
def test_a_run_learns(
    kind: str, form: str, make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    options = make_config(
        optimizer={"epochs": 8},
        objective={"kind": kind, "scale": 5.0},
        towers={"weight_form": form},
    )
    losses = make_trainer(options, tmp_path).run()
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def test_a_run_learns_in_bf16(make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """Through the written-out attention, which bf16 on a CPU takes."""
    losses = make_trainer(make_config(optimizer={"epochs": 8, "precision": "bf16"}), tmp_path).run()
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def test_gains_learn(make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    trainer = make_trainer(make_config(towers={"weight_form": "log", "pooling": "weighted"}), tmp_path)
    trainer.run()
    gains = [parameter for name, parameter in trainer.towers.named_parameters() if name.endswith("gain")]
    assert len(gains) == 4
    assert all((gain != 0.0).any() for gain in gains)


def test_gains_stay_where_their_rate_is_0(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    fixed = {"weight_form": "plain", "pooling": "weighted", "pooling_gain": 1.0}
    trainer = make_trainer(make_config(towers=fixed, optimizer={"gain_rate": 0.0}), tmp_path / "fixed")
    trainer.run()
    assert trainer.towers.query.gain.item() == trainer.towers.document.gain.item() == 1.0


def test_hard_negatives_take_part(
    make_config: MakeConfig, make_trainer: MakeTrainer, toy_collection: Collection, tmp_path: Path
) -> None:
    """Of two mined documents a query, one is drawn an epoch; a query without any repeats its own, blocked."""
    mined = replace(
        toy_collection,
        negatives=[() if query % 3 == 0 else ((query + 7) % 50, (query + 9) % 50) for query in range(150)],
    )
    options = make_config(objective={"hard_negatives": 1})
    trainer = make_trainer(options, tmp_path, collection=mined)
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
    losses = trainer.run()
    assert np.isfinite(losses).all()


def test_a_batch_depends_on_seed_and_step_alone(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    def queries(steps: range, **changes: int) -> list[list[int]]:
        batches = make_trainer(make_config(**changes), tmp_path).batches
        assert batches.steps(1) == 3 * 9
        return [batches.batch(step, 0, 1).queries.tolist() for step in steps]

    whole = queries(range(27))
    assert queries(range(26, -1, -1)) == whole[::-1]
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


def test_a_checkpoint_comes_back_as_it_was(
    make_config: MakeConfig,
    make_trainer: MakeTrainer,
    make_preprocessor: Callable[[TrainConfig], Preprocessor],
    tmp_path: Path,
) -> None:
    run = make_trainer(make_config(optimizer={"max_steps": 2}), tmp_path / "run")
    run.run()
    save_checkpoint(tmp_path / "ckpt", run.towers, make_preprocessor(run.config), {"steps": 2})
    loaded = load_checkpoint(tmp_path / "ckpt")
    assert loaded.report == {"steps": 2}
    assert loaded.towers.query.words is loaded.towers.document.words
    expected, found = run.towers.state_dict(), loaded.towers.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_split_that_is_not_there_is_refused(collection_folder: Path) -> None:
    with pytest.raises(InputError, match=r"none\.tsv"):
        read_collection(collection_folder, "none", TrainConfig(name="x").field_schema)


def test_shipped_configurations_are_valid() -> None:
    root = Path(__file__).parents[2]
    run = [*(root / "configs").iterdir()]
    assert len(run) <= 10
    for file in (*run, *(root / "research" / "papers").iterdir()):
        assert read_stages(file)[-1].config.name == file.stem
