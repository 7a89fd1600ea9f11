"""Training of learned impacts: what is minimised, that it is learned, resumed, and kept."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from glow.cli import app
from glow.errors import ArtifactError, ConfigError, MismatchError
from glow.nn import TermImpacts
from glow.training.data.dataset import Collection
from glow.training.impacts import ImpactsConfig, ImpactsInputs, load_impacts, ranknet_loss, train_impacts
from glow.training.run import Progress


def config(**changes: Any) -> ImpactsConfig:
    """A small run."""
    made: dict[str, Any] = {
        "name": "toy",
        "checkpoint_steps": 5,
        "impacts": {"dimensions": 8},
        "objective": {"negatives": 2, "depth": 10, "vocabulary": 16},
        "optimizer": {"batch_size": 8, "steps": 60, "warmup": 5, "learning_rate": 5e-3},
    }
    for section, values in changes.items():
        made[section] = made[section] | values if isinstance(values, dict) else values
    return ImpactsConfig.model_validate(made)


@pytest.fixture
def inputs(collection_folder: Path, run_file: Path, toy_model: Path, tmp_path: Path) -> ImpactsInputs:
    return ImpactsInputs([collection_folder], [run_file], "train", tmp_path / "head", toy_model)


def test_ranknet() -> None:
    """Golden G6: five pairs of grades 2, 1, 0, 0."""
    loss = ranknet_loss(torch.tensor([[2.0, 1.0, 0.0, 0.5]]), torch.tensor([[2.0, 1.0, 0.0, 0.0]]))
    assert float(loss) == pytest.approx(0.285787, abs=1e-6)
    both = ranknet_loss(torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert float(both) == pytest.approx(float(np.log1p(np.exp(-1.0))), abs=1e-5)  # the second has no pair


def test_a_run_learns_and_says_what_it_did(inputs: ImpactsInputs) -> None:
    told: list[Progress] = []
    longer = config(objective={"penalty": 0.0}, optimizer={"steps": 150})
    report = train_impacts(longer, inputs, on_progress=told.append)
    losses = [progress.loss for progress in told]
    assert losses[-1] < 0.7 * losses[19]  # means of the last 50 steps, and of the first 20
    trained = load_impacts(inputs.out)
    assert report["data"][0]["queries"] > 10 and report["model"].startswith("toy-model")
    assert sum(trained.priors.values()) == pytest.approx(1.0) and "the" not in trained.priors
    assert trained.report["fingerprint"] == report["fingerprint"]


def test_a_stopped_run_goes_on_bit_for_bit(inputs: ImpactsInputs, tmp_path: Path) -> None:
    small = config(optimizer={"steps": 12})
    train_impacts(small, inputs)
    whole = load_impacts(inputs.out).head.state_dict()
    other = ImpactsInputs(inputs.data, inputs.candidates, "train", tmp_path / "again", inputs.model)

    def stop(progress: Progress) -> None:
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_impacts(small, other, on_progress=stop)
    train_impacts(small, other)
    resumed = load_impacts(other.out).head.state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(MismatchError, match="other configuration"):
        train_impacts(config(optimizer={"steps": 12}, seed=1), other)


def test_the_penalty_makes_impacts_few(inputs: ImpactsInputs, tmp_path: Path) -> None:
    cuts = []
    for penalty in (0.0, 30.0):
        out = tmp_path / f"penalty-{penalty}"
        again = ImpactsInputs(inputs.data, inputs.candidates, "train", out, inputs.model)
        train_impacts(config(objective={"penalty": penalty}), again)
        cuts.append(float(load_impacts(out).head.cut.detach()))
    assert cuts[1] > cuts[0] + 0.02


def test_padding_says_nothing() -> None:
    torch.manual_seed(0)
    head = TermImpacts(12, 4)
    words, gains = head.words(torch.randn(5, 12), torch.ones(5))
    tokens = head.tokens(torch.randn(2, 9, 12))
    mask = torch.arange(9)[None] < torch.tensor([[4], [9]])
    found = head(words, gains, tokens, mask)
    assert torch.allclose(found[:, :1], head(words, gains, tokens[:1, :4], mask[:1, :4]))
    assert (found >= 0).all()


def test_candidates_must_fit_the_folders(inputs: ImpactsInputs) -> None:
    with pytest.raises(ConfigError, match="one TREC run for each folder"):
        train_impacts(config(), ImpactsInputs(inputs.data, [], "train", inputs.out, inputs.model))


def test_the_command_trains_and_refuses_what_it_does_not_read(inputs: ImpactsInputs, tmp_path: Path) -> None:
    path = tmp_path / "learned.toml"
    path.write_text(
        'name = "toy"\n[impacts]\ndimensions = 8\n[objective]\nvocabulary = 8\n[optimizer]\nbatch_size = 8\nsteps = 3\n'
    )
    given = ["train", "--config", str(path), "--init", str(inputs.model), "--data", str(inputs.data[0])]
    given += ["--candidates", str(inputs.candidates[0]), "--out", str(inputs.out)]
    done = CliRunner().invoke(app, [*given, "--json", str(tmp_path / "report.json")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "report.json").read_text())["config"]["optimizer"]["steps"] == 3
    refused = CliRunner().invoke(app, [*given, "--teacher", str(inputs.model)])
    assert refused.exit_code != 0 and "--teacher" in refused.output


def test_the_shipped_configuration_is_valid(collection_folder: Path) -> None:
    root = Path(__file__).parents[2]
    assert ImpactsConfig.load_toml(root / "configs" / "learned.toml").impacts.dimensions == 128


def test_a_checkpoint_of_something_else_is_refused(inputs: ImpactsInputs, tmp_path: Path) -> None:
    train_impacts(config(optimizer={"steps": 1}), inputs)
    broken = tmp_path / "broken"
    shutil.copytree(inputs.out, broken)
    (broken / "impacts.json").unlink()
    with pytest.raises(ArtifactError, match=r"impacts\.json"):
        load_impacts(broken)


def test_documents_of_the_collection_are_encoded_once(
    inputs: ImpactsInputs, toy_collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_impacts(config(optimizer={"steps": 2}), inputs)
    sizes = next(inputs.out.with_name("head.run").glob("*/sizes.npy"))
    assert len(np.load(sizes)) == len(toy_collection.documents)
    monkeypatch.setattr("glow.nn.Tower.states", lambda *_: pytest.fail("encoded again"))
    train_impacts(config(optimizer={"steps": 2}), inputs)
