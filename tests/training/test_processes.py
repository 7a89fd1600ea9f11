"""Two processes on a CPU, which gloo joins: one checkpoint, equal weights, different pairs, averaged gradients."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from glow.cli import app
from glow.errors import ConfigError, MismatchError
from glow.options import read_toml
from glow.training.checkpoint import load_checkpoint, load_pretrained
from glow.training.rerank import load_reranker
from glow.training.run import Processes, read_metrics
from glow.training.run.loop import _gradients, _moment
from glow.training.towers import TrainConfig
from tests.training.process_script import make_trial

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("process_script.py")
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
CONFIG = """
name = "two"
[towers]
init_layers = [0, 1]
dropout = 0.0
[optimizer]
batch_size = 16
epochs = 4
learning_rate = 3e-3
precision = "fp32"
[watch]
steps = 4
"""


def launch(*arguments: str | Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *LAUNCH, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def left(collection_folder: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what both processes of the script left."""
    out = tmp_path_factory.mktemp("left")
    (out / "two.toml").write_text(CONFIG, encoding="utf-8")
    launch(SCRIPT, out / "two.toml", collection_folder, bert_folder, out)
    return out


def test_both_processes_share_pairs_and_end_with_equal_weights_whatever_they_started_from(left: Path) -> None:
    reports = [json.loads((left / f"report{rank}.json").read_bytes()) for rank in (0, 1)]
    first, second = reports
    assert first["before"] != second["before"]
    assert first["after"] == second["after"] != first["before"]
    per_epoch = 150 // 16 // 2
    assert [len(report["batches"]) for report in reports] == [4 * per_epoch] * 2
    for epoch in range(4):
        rows = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        pairs = {pair for report in reports for batch in report["batches"][rows] for pair in batch}
        assert len(pairs) == 2 * per_epoch * 16  # no pair twice
    assert [row["step"] for row in read_metrics(left / "run")] == [4, 8, 10, 12, 16], "written once"


def test_the_averaged_gradient_is_that_of_the_mean_loss(
    left: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """Against one process that takes both batches: the mean of their gradients."""
    found, other = (load_file(left / f"gradients{rank}.safetensors") for rank in (0, 1))
    trial = make_trial(
        TrainConfig.model_validate(read_toml(left / "two.toml")), collection_folder, bert_folder, tmp_path, 5
    )
    parameters = dict(trial.loss.named_parameters())
    with torch.no_grad():
        for name, tensor in load_file(left / "start1.safetensors").items():
            parameters[name].copy_(tensor)
    own = Processes("cpu")
    for step in range(2):
        _gradients(trial.recipe, own, _moment(trial.recipe, own, step, 16))  # gradients add up
    assert found.keys() == {name for name, parameter in parameters.items() if parameter.grad is not None}
    for name, gradient in found.items():
        assert torch.equal(gradient, other[name]), name
        expected = parameters[name].grad
        assert expected is not None
        torch.testing.assert_close(gradient, expected / 2, atol=1e-6, rtol=1e-4)


def test_the_command_writes_one_checkpoint(
    left: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "checkpoint"
    files = [
        "--config",
        left / "two.toml",
        "--data",
        collection_folder,
        "--dev",
        collection_folder,
        "--out",
        out,
    ]
    # `auto` must find the other process on a machine without a GPU as well; where there is one, gloo is asked for.
    device = "cpu" if torch.cuda.is_available() else "auto"
    launch("-m", "glow", "train", *files, "--init", bert_folder, "--device", device)
    report = load_checkpoint(out).report
    assert (report["processes"], report["steps"]) == (2, 16)
    assert [row["step"] for row in read_metrics(tmp_path / "checkpoint.run")] == [4, 8, 10, 12, 16]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "checkpoint.run"]


def test_pre_training_in_two_processes_leaves_one_checkpoint_and_is_another_run_than_in_one(
    toy_corpus: Path, bert_folder: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "two.toml", tmp_path / "two"
    path.write_text(
        'kind = "pretraining"\nname = "two"\n[pretraining]\nlength = 16\nsequences = 4\nspecials = 2\n[encoder]\ninit_layers = [0, 1]\n'
        '[optimizer]\nbatch_tokens = 128\nsteps = 4\nprecision = "fp32"\n'
    )
    files = ["--config", path, "--corpus", toy_corpus, "--init", bert_folder, "--out", out, "--device", "cpu"]
    launch("-m", "glow", "pretrain", *files)
    report = load_pretrained(out).report
    assert (report["processes"], report["steps"]) == (2, 4)
    alone = CliRunner().invoke(app, ["pretrain", *map(str, files)])
    assert alone.exit_code == MismatchError.exit_code, alone.output


def test_stages_of_a_re_ranker_wait_for_the_checkpoint_before_them(
    collection_folder: Path, run_file: Path, bert_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "stages.toml"
    cross = "kind = 'reranker'\n[cross]\ninit_layers = [0, 1]\ndropout = 0.0\n[objective]\nnegatives = 2\ndepth = 10\n"
    steps = '[optimizer]\nbatch_size = 8\nmax_steps = 2\nprecision = "fp32"\n'
    file.write_text(
        cross + steps + '[[stage]]\nname = "first"\n[[stage]]\nname = "second"\n', encoding="utf-8"
    )
    files = ["--config", file, "--data", collection_folder, "--candidates", run_file, "--init", bert_folder]
    launch("-m", "glow", "train", *files, "--out", tmp_path / "out", "--device", "cpu")
    report = load_reranker(tmp_path / "out").report
    assert (report["processes"], report["steps"]) == (2, 2)


def test_fewer_batches_than_processes_are_refused(
    collection_folder: Path, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many as two hundred processes, which nobody starts for a test."""
    monkeypatch.setattr("accelerate.Accelerator.num_processes", 200)
    config = TrainConfig.model_validate({"name": "x", "optimizer": {"precision": "fp32"}})
    with pytest.raises(ConfigError, match="too few batches for 200 processes"):
        make_trial(config, collection_folder, bert_folder, tmp_path, 0).run()
