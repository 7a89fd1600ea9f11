"""A whole small run: it learns, resumes to the same weights, and refuses another run's state."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.errors import ConfigError, InputError, MismatchError
from glow.options import StrictModel
from glow.text import Preprocessor
from glow.training.checkpoint import load_checkpoint, save_checkpoint
from glow.training.config import TrainConfig
from glow.training.data.dataset import Collection, read_collection
from glow.training.impacts import ImpactsConfig
from glow.training.loop import Trainer
from glow.training.pretraining import PretrainConfig
from glow.training.rerank import RerankConfig
from research.grid.grid import GridConfig

MakeTrainer = Callable[..., Trainer]
MakeConfig = Callable[..., TrainConfig]


@pytest.mark.parametrize("kind", ["softmax", "bce", "pairwise"])
@pytest.mark.parametrize("form", ["multiply", "log", "mlp"])
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


def test_gains_stay_where_their_rate_is_0_and_a_merging_mlp_learns_at_theirs(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    fixed = {"weight_form": "plain", "pooling": "weighted", "pooling_gain": 1.0}
    trainer = make_trainer(make_config(towers=fixed, optimizer={"gain_rate": 0.0}), tmp_path / "fixed")
    trainer.run()
    assert trainer.towers.query.gain.item() == trainer.towers.document.gain.item() == 1.0
    moved = {}
    for rate in (1.0, 100.0):
        run = make_trainer(
            make_config(towers={"weight_form": "mlp"}, optimizer={"gain_rate": rate}), tmp_path / str(rate)
        )
        run.run()
        merge = run.towers.query.layers[0].attention.merge
        moved[rate] = merge.outer.weight.abs().max().item()
    assert moved[100.0] > 10 * moved[1.0] > 0.0


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
    for epoch in range(6):
        for batch in trainer.batches.epoch(epoch):
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


def test_a_killed_run_resumes_to_the_same_weights(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    whole = make_trainer(make_config(), tmp_path / "whole")
    whole.run()
    first = make_trainer(make_config(), tmp_path / "cut")

    class Killed(Exception):
        pass

    def kill(progress: object) -> None:
        if progress.step == 14:  # type: ignore[attr-defined]
            raise Killed

    first.on_progress = kill
    with pytest.raises(Killed):
        first.run()
    second = make_trainer(make_config(), tmp_path / "cut")
    with (tmp_path / "cut" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 14, "lo')  # what a kill can leave
    losses = second.run()
    assert len(losses) == second.steps - 12  # the last state was kept after step 12
    for (name, expected), (_, found) in zip(
        whole.towers.named_parameters(), second.towers.named_parameters(), strict=True
    ):
        assert torch.equal(expected, found), name


def test_the_state_of_another_run_is_refused(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    make_trainer(make_config(optimizer={"max_steps": 4}), tmp_path).run()
    other = make_trainer(make_config(optimizer={"max_steps": 4, "learning_rate": 1e-3}), tmp_path)
    with pytest.raises(MismatchError, match="other configuration or data"):
        other.run()


def test_batches_depend_on_seed_and_epoch_alone(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    batches = make_trainer(make_config(), tmp_path).batches
    first, again, other = ([batch.queries.tolist() for batch in batches.epoch(n)] for n in (0, 0, 1))
    assert first == again != other
    assert len(first) == batches.steps_per_epoch


def test_equal_texts_and_judged_pairs_count_as_relevant(
    make_config: MakeConfig, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    batches = make_trainer(make_config(), tmp_path).batches
    for batch in batches.epoch(0):
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


def test_all_faults_of_a_configuration_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "x"\nfields = "nowhere"\nspeed = 3\n[optimizer]\nbatch_size = 0\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        TrainConfig.load_toml(path)
    assert "speed" in str(caught.value)
    assert "optimizer.batch_size" in str(caught.value)


def test_shipped_configurations_are_valid() -> None:
    folder = Path(__file__).parents[2] / "configs"
    variants = set(GridConfig.load_toml(folder / "grid.toml").variants)
    files = {path.name: path for path in folder.glob("*.toml") if path.name != "grid.toml"}
    assert variants < files.keys()
    for file in files.values():
        text = file.read_text()
        kinds: dict[str, type[StrictModel]] = {
            "[cross]": RerankConfig,
            "[impacts]": ImpactsConfig,
            "[pretraining]": PretrainConfig,
        }
        kind = next((kind for table, kind in kinds.items() if table in text), TrainConfig)
        assert kind.load_toml(file).model_dump()["name"] == file.stem
