"""`glow train` from folders to checkpoint: data, synthesis, distillation, dev, MS MARCO, refusals."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.testing
from safetensors.torch import load_file, save_file

from glow.training.__main__ import app
from glow.training.checkpoint import load_checkpoint
from glow.training.run_folder import read_metrics
from glow.training.watch import Watch

CONFIG = """
name = "small"
[towers]
init_layers = [0, 1]
weight_form = "log"
[objective]
distill_weight = 1.0
list_weight = 0.5
margin_weight = 0.5
[optimizer]
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


def test_a_finished_run_is_left_as_it_is(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    weights = ("--init", bert_folder, "--teacher", bert_folder)
    call = ("--config", config, "--data", collection_folder, "--out", out, *weights)
    first = train(*call)
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert (report["steps"], report["best_step"]) == (4, None)
    made = (out / "report.json").stat()
    again = train(*call)
    assert json.loads(again.stdout) == report
    assert (out / "report.json").stat().st_ino == made.st_ino
    # Its checkpoint was never written, or is gone: it is made, and the loss is that of the metrics.
    shutil.rmtree(out)
    found = json.loads(train(*call).stdout)
    assert found["steps"] == 4
    assert found["final_loss"] == read_metrics(tmp_path / "out.run")[-1]["loss"]
    assert load_checkpoint(out).report == found
    # A checkpoint of another run is no answer.
    (shutil.rmtree(out), shutil.rmtree(tmp_path / "out.run"))
    other = json.loads(train(*call, "--seed", 9).stdout)
    shutil.copytree(out, tmp_path / "other")
    (shutil.rmtree(out), shutil.rmtree(tmp_path / "out.run"))
    train(*call)
    shutil.rmtree(out)
    (tmp_path / "other").rename(out)
    assert json.loads(train(*call).stdout)["fingerprint"] == report["fingerprint"] != other["fingerprint"]


def test_a_run_that_stops_early_reports_the_steps_it_did(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.5, 0.4])
    monkeypatch.setattr(Watch, "measure", lambda *arguments: {"toy": next(scores)})
    config.write_text(CONFIG.replace("steps = 2", "steps = 1\npatience = 1"), encoding="utf-8")
    dev = tmp_path / "dev"
    shutil.copytree(collection_folder, dev)
    folders = ("--data", collection_folder, "--dev", dev, "--out", tmp_path / "out")
    call = ("--config", config, *folders, "--init", bert_folder, "--teacher", bert_folder)
    done = train(*call)
    assert done.exit_code == 0, done.output
    report = load_checkpoint(tmp_path / "out").report
    assert (report["steps"], report["best_step"]) == (2, 1)
    other_text(dev)  # what decided when to stop
    refused = train(*call)
    assert refused.exit_code == 3
    assert "other configuration or data" in " ".join(refused.output.split())


def other_text(data: Path, *_: Path) -> None:
    """Of a document; pairs and counts stay as they are."""
    first, *others = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    document = json.loads(first)
    document["title"], document["text"] = document["text"], document["title"]
    lines = [json.dumps(document), *others]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def other_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.0.output.dense.weight"] *= -1.0
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        other_text,
        lambda data, init, teacher: other_weights(init),
        lambda data, init, teacher: other_weights(teacher),
    ],
)
def test_the_state_of_other_texts_or_weights_is_refused(
    change: Callable[[Path, Path, Path], None],
    config: Path,
    collection_folder: Path,
    bert_folder: Path,
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in ("data", "init", "teacher")]
    for source, copied in zip((collection_folder, bert_folder, bert_folder), folders, strict=True):
        shutil.copytree(source, copied)
    options = (
        part
        for name, folder in zip(("data", "init", "teacher"), folders, strict=True)
        for part in (f"--{name}", folder)
    )
    call = ("--config", config, "--out", tmp_path / "out", *options)
    assert train(*call).exit_code == 0
    change(*folders)
    refused = train(*call)
    assert refused.exit_code == 3
    assert "other configuration or data" in " ".join(refused.output.split())


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
