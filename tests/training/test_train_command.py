"""`python -m glow.training train` from folders to checkpoint: data, synthesis, distillation, dev, MS MARCO, refusals."""

import json
from pathlib import Path

import pytest
import typer.testing

from glow.training.__main__ import app
from glow.training.checkpoint import load_checkpoint
from glow.training.run_folder import read_metrics

CONFIG = """
name = "small"
[towers]
init_layers = [0, 1]
weight_form = "log"
[objective]
distill_weight = 1.0
list_weight = 0.5
margin_weight = 0.5
[optimiser]
batch_size = 16
max_steps = 4
chunk_size = 5
precision = "fp32"
[watch]
steps = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def train(*arguments: object) -> typer.testing.Result:
    fixed = ["train", "--device", "cpu", "--threads", "1"]
    return typer.testing.CliRunner().invoke(app, [*fixed, *(str(argument) for argument in arguments)])


def test_a_run_from_folders_to_checkpoint(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """With every kind of distillation, gradient caching and a watched dev split."""
    out, report = tmp_path / "out", tmp_path / "report.json"
    folders = ("--data", collection_folder, "--dev", collection_folder, "--out", out)
    weights = ("--init", bert_folder, "--teacher", bert_folder, "--seed", 3)
    done = train("--config", config, *folders, *weights, "--json", report)
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())
    assert found["steps"] == 4
    assert found["config"]["seed"] == 3
    assert load_checkpoint(out).report == found
    rows = read_metrics(tmp_path / "out.run")
    assert [row["step"] for row in rows if "dev" in row] == [2, 4]


def test_documents_alone_make_a_run(
    config: Path, toy_corpus: Path, toy_model: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    weights = ("--init", bert_folder, "--teacher", bert_folder, "--synthesis-model", toy_model)
    done = train("--config", config, "--synthesise", toy_corpus, "--out", out, *weights)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "out.run" / "synthetic-0"
    kept = json.loads((folder / "synthesis.json").read_text())
    data = load_checkpoint(out).report["data"]
    assert data == [{"name": "synthetic-0", "split": "train", "documents": 50, "pairs": kept["pairs"]}]


def test_the_same_folder_twice_counts_twice(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    folders = ("--data", collection_folder, "--data", collection_folder, "--out", tmp_path / "out")
    done = train("--config", config, *folders, "--init", bert_folder, "--teacher", bert_folder)
    assert done.exit_code == 0, done.output
    assert [item["pairs"] for item in load_checkpoint(tmp_path / "out").report["data"]] == [150, 150]


def test_nothing_to_train_on_is_refused(config: Path, bert_folder: Path, tmp_path: Path) -> None:
    done = train(
        "--config", config, "--out", tmp_path / "out", "--init", bert_folder, "--teacher", bert_folder
    )
    assert done.exit_code == 2
    assert "give --data or --synthesise" in done.output


def test_fp16_without_a_gpu_is_refused(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    config.write_text(CONFIG.replace('"fp32"', '"fp16"'), encoding="utf-8")
    folders = ("--data", collection_folder, "--out", tmp_path / "out")
    done = train("--config", config, *folders, "--init", bert_folder, "--teacher", bert_folder)
    assert done.exit_code == 2
    assert "needs a GPU" in done.output
    assert not (tmp_path / "out").exists()
