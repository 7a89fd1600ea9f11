"""Two processes on a CPU, which gloo joins: one checkpoint, equal weights, different pairs, averaged gradients."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
TOWERS = """
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
ENCODER = """
kind = "pretraining"
name = "encoder"
[pretraining]
length = 16
sequences = 4
specials = 2
[encoder]
init_layers = [0, 1]
[optimizer]
batch_tokens = 128
steps = 4
precision = "fp32"
"""
STAGES = """
kind = "reranker"
[cross]
init_layers = [0, 1]
dropout = 0.0
[objective]
negatives = 2
depth = 10
[optimizer]
batch_size = 8
max_steps = 2
precision = "fp32"
[[stage]]
name = "first"
[[stage]]
name = "stages"
"""
CONFIGS = {"two": TOWERS, "encoder": ENCODER, "stages": STAGES}


@pytest.fixture(scope="module")
def left(
    collection_folder: Path,
    run_file: Path,
    toy_corpus: Path,
    bert_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of what both processes of the script left: three commands' checkpoints, and the script's own run."""
    out = tmp_path_factory.mktemp("left")
    for name, text in CONFIGS.items():
        (out / f"{name}.toml").write_text(text, encoding="utf-8")
    pairs, hits = ("--data", collection_folder), ("--candidates", run_file)
    # `auto` must find the other process on a machine without a GPU as well; where there is one, gloo is asked for.
    device = "cpu" if torch.cuda.is_available() else "auto"
    calls = [
        ("train", "two", *pairs, "--dev", collection_folder, "--device", device),
        ("pretrain", "encoder", "--corpus", toy_corpus, "--device", "cpu"),
        ("train", "stages", *pairs, *hits, "--device", "cpu"),
    ]
    written = [command_of(out, bert_folder, *call) for call in calls]
    (out / "calls.json").write_text(json.dumps(written), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    launch = [sys.executable, *LAUNCH, SCRIPT, out, collection_folder, bert_folder]
    done = subprocess.run(
        launch, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def command_of(out: Path, bert_folder: Path, verb: str, name: str, *files: object) -> list[str]:
    config, checkpoint = out / f"{name}.toml", out / f"{name}.checkpoint"
    call = (verb, "--config", config, "--out", checkpoint, "--init", bert_folder, *files)
    return [str(part) for part in call]


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


@pytest.mark.parametrize(
    ("name", "load", "steps"),
    [("two", load_checkpoint, 16), ("encoder", load_pretrained, 4), ("stages", load_reranker, 2)],
)
def test_a_command_writes_one_checkpoint(
    name: str, load: Callable[[Path], Any], steps: int, left: Path
) -> None:
    """Stages wait for the checkpoint before them."""
    report = load(left / f"{name}.checkpoint").report
    assert (report["processes"], report["steps"]) == (2, steps)
    assert read_metrics(left / f"{name}.checkpoint.run")[-1]["step"] == steps
    made = {path.name.removeprefix(f"{name}.") for path in left.glob(f"{name}.*")}
    assert made - {"checkpoint.stages"} == {"toml", "checkpoint", "checkpoint.run"}


def test_a_run_of_two_processes_is_another_than_in_one(
    left: Path, toy_corpus: Path, bert_folder: Path
) -> None:
    call = command_of(left, bert_folder, "pretrain", "encoder", "--corpus", toy_corpus, "--device", "cpu")
    alone = CliRunner().invoke(app, call)
    assert alone.exit_code == MismatchError.exit_code, alone.output


def test_fewer_batches_than_processes_are_refused(
    collection_folder: Path, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many as two hundred processes, which nobody starts for a test."""
    monkeypatch.setattr("accelerate.Accelerator.num_processes", 200)
    config = TrainConfig.model_validate({"name": "x", "optimizer": {"precision": "fp32"}})
    with pytest.raises(ConfigError, match="too few batches for 200 processes"):
        make_trial(config, collection_folder, bert_folder, tmp_path, 0).run()
