"""`glow train` from folders to checkpoint: data, distillation, dev, a kill, refusals, and configurations of several stages."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.testing
from safetensors.torch import load_file, save_file

from glow.artifact import file_sha256
from glow.cli import app
from glow.errors import ConfigError
from glow.training import Given, TrainConfig, load_checkpoint
from glow.training.commands import read_stages
from glow.training.run import STATE_FILE, read_metrics
from tests.until import until

ROOT = Path(__file__).parents[2]
FIXED = ["train", "--device", "cpu", "--threads", "1"]
CONFIG = """
name = "small"
[towers]
init_layers = [0, 1]
weight_form = "log"
[objective]
distill_weight = 1.0
list_weight = 0.5
[optimizer]
batch_size = 16
max_steps = 4
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
    return typer.testing.CliRunner().invoke(app, [*FIXED, *(str(argument) for argument in arguments)])


def test_a_run_from_folders_to_checkpoint(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """With every kind of distillation and a watched dev split; progress is lines, a folder that is given twice counts twice."""
    longer = CONFIG.replace("max_steps = 4", "max_steps = 26\nepochs = 9")
    config.write_text(longer.replace("\nsteps = 2\n", "\nsteps = 20\n"), encoding="utf-8")
    out, report = tmp_path / "out", tmp_path / "report.json"
    folders = ["--data", collection_folder] * 2 + ["--dev", collection_folder, "--out", out]
    weights = ("--init", bert_folder, "--teacher", bert_folder, "--seed", 3)
    done = train("--config", config, *folders, *weights, "--json", report)
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())
    assert (found["steps"], found["config"]["seed"]) == (26, 3)
    assert [item["pairs"] for item in found["data"]] == [150, 150]
    assert load_checkpoint(out).report == found
    assert [row["step"] for row in read_metrics(tmp_path / "out.run") if "dev" in row] == [20, 26]
    lines = re.findall(
        r"^step (\d+) of 26: loss \d+\.\d{4}(, dev \S+ \d\.\d{3})?$", done.stderr, re.MULTILINE
    )
    assert [(step, bool(dev)) for step, dev in lines] == [("20", True), ("25", False), ("26", True)]


def test_a_run_that_is_killed_goes_on_to_the_same_weights(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    longer = CONFIG.replace("max_steps = 4", "max_steps = 60\nepochs = 9").replace("steps = 2", "steps = 0")
    config.write_text("checkpoint_steps = 7\n" + longer, encoding="utf-8")
    files = ("--config", config, "--data", collection_folder, "--init", bert_folder, "--teacher", bert_folder)
    command = [sys.executable, "-m", "glow", *FIXED, *map(str, files), "--out", str(tmp_path / "cut")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    until(lambda: len(read_metrics(tmp_path / "cut.run")) >= 2 or process.poll() is not None, 120)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut").exists()
    assert (tmp_path / "cut.run" / STATE_FILE).exists()
    for name in ("cut", "whole"):
        assert train(*files, "--out", tmp_path / name).exit_code == 0
    cut, whole = (tmp_path / name / "model.safetensors" for name in ("cut", "whole"))
    assert file_sha256(cut) == file_sha256(whole)


def other_text(data: Path) -> None:
    """Pairs and counts stay as they are."""
    first, *others = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    document = json.loads(first)
    document["title"], document["text"] = document["text"], document["title"]
    (data / "corpus.jsonl").write_text("".join([json.dumps(document) + "\n", *others]), encoding="utf-8")


def other_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.0.output.dense.weight"] *= -1.0
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "place"), [(other_text, 0), (other_weights, 1), (other_weights, 2), (other_text, 3)]
)
def test_the_state_of_other_texts_or_weights_is_refused(
    change: Callable[[Path], None],
    place: int,
    config: Path,
    collection_folder: Path,
    bert_folder: Path,
    tmp_path: Path,
) -> None:
    """A development set counts if it decides when to stop."""
    config.write_text(CONFIG + "patience = 2\n", encoding="utf-8")
    call: list[object] = ["--config", config, "--out", tmp_path / "out"]
    for name in ("data", "init", "teacher", "dev"):
        shutil.copytree(collection_folder if name in ("data", "dev") else bert_folder, tmp_path / name)
        call += [f"--{name}", tmp_path / name]
    assert train(*call).exit_code == 0
    change(tmp_path / ("data", "init", "teacher", "dev")[place])
    refused = train(*call)
    assert refused.exit_code == 3
    assert "other configuration or data" in " ".join(refused.output.split())


def test_nothing_to_train_on_is_refused(config: Path, bert_folder: Path, tmp_path: Path) -> None:
    done = train("--config", config, "--out", tmp_path / "x", "--init", bert_folder, "--teacher", bert_folder)
    assert done.exit_code == 2
    assert "give --data" in done.output


UNWATCHED = CONFIG.replace("steps = 2\n", "steps = 0\n")
TEACHERLESS = re.sub(r"_weight = \S+", "_weight = 0.0", CONFIG)


@pytest.mark.parametrize(
    ("text", "flag", "said"),
    [
        (UNWATCHED, "--dev", r"--dev has no use in .*set \[watch\] steps above 0 or leave --dev out"),
        (TEACHERLESS, "--teacher", r"--teacher has no use in .* above 0 or leave --teacher out"),
        (UNWATCHED + "patience = 2\n", "", r"patience needs steps above 0, found patience 2 and steps 0"),
    ],
)
def test_what_has_no_use_in_any_stage_is_refused(
    text: str, flag: str, said: str, config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    config.write_text(text, encoding="utf-8")
    useless = {"--dev": ["--dev", collection_folder], "--teacher": ["--teacher", bert_folder], "": []}[flag]
    call = ("--config", config, "--init", bert_folder, "--out", tmp_path / "out", *useless, "--dry")
    refused = train(*call, "--data", collection_folder)
    assert refused.exit_code == 2
    assert re.search(said, " ".join(refused.output.split()))
    staged = f'{text.split("patience")[0]}[[stage]]\nname = "a"\n[[stage]]\nname = "b"\n'
    staged += "watch.steps = 2\nobjective.distill_weight = 1.0\n"
    config.write_text(staged, encoding="utf-8")
    assert train(*call, "--data", collection_folder).exit_code == 0, "one stage uses it"


STAGES = """
[towers]
init_layers = [0, 1]
[optimizer]
batch_size = 16
max_steps = 3
precision = "fp32"
[[stage]]
name = "first"
optimizer.max_steps = 2
[[stage]]
name = "second"
seed = 7
towers.weight_form = "log"
"""


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    path = tmp_path / "second.toml"
    path.write_text(STAGES, encoding="utf-8")
    return path


def test_a_stage_changes_what_stands_above_it_and_starts_from_the_one_before(staged: Path) -> None:
    first, second = read_stages(staged)
    assert isinstance(first.config, TrainConfig)
    assert isinstance(second.config, TrainConfig)
    configs = (first.config, second.config)
    found = [(each.seed, each.optimizer.max_steps, each.towers.weight_form) for each in configs]
    assert found == [(0, 2, "multiply"), (7, 3, "log")]
    assert first.config.optimizer.batch_size == second.config.optimizer.batch_size == 16
    given = Given(out=Path("a/out"), init=Path("bert"))
    alone, after = first.given(given, has_init=False), second.given(given, has_init=False)
    assert (alone.init, alone.out) == (Path("bert"), Path("a/out.stages/first"))
    assert (after.init, after.out) == (alone.out, given.out)
    assert second.given(given, has_init=True).init == given.init
    with pytest.raises(ConfigError, match="has no stage 'third', found first, second"):
        read_stages(staged, "third")
    (only,) = read_stages(staged, "second")
    assert (only.config, only.before, only.is_last) == (second.config, "", True)
    assert only.given(given, has_init=False).out == given.out
    assert [each.config.seed for each in read_stages(staged, seed=5, steps=1)] == [5, 5]
    assert [each.config.optimizer.max_steps for each in read_stages(staged, steps=1)] == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[towers]", 'kind = "tower"\n[towers]', r"kind: expected one of towers, .*, found 'tower'"),
        ('[[stage]]\nname = "first"', "[stage]\n", r"cannot read|expected tables \[\[stage\]\]"),
        ('"second"', '"first"', r"stages named 'first', 'first'; expected distinct"),
        ('"first"', '"../../evil"', r"stages named '\.\./\.\./evil', 'second'; expected"),
        ('"first"', '""', r"stages named '', 'second'; expected"),
        ('"first"', '"first"\nspeed = 3\nseed = "x"', r"stage first: .*seed.*speed"),
        ("[[stage]]\n", '[[stage]]\ntowers.pooling = "no"\n', r"first: towers\.pooling.*second: "),
    ],
)
def test_every_fault_of_every_stage_is_named(old: str, new: str, said: str, staged: Path) -> None:
    staged.write_text(STAGES.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        read_stages(staged)


def test_the_command_runs_all_stages_or_one_and_dry_takes_no_step(
    staged: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    files = ("--config", staged, "--data", collection_folder, "--init", bert_folder, "--out", out)

    dry = json.loads(train(*files, "--dry").stdout)["stages"]
    assert [each["config"]["name"] for each in dry] == ["first", "second"]
    assert dry[0]["steps"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {staged.name}
    both = json.loads(train(*files).stdout)["stages"]
    assert [each["steps"] for each in both] == [2, 3]
    opened = load_checkpoint(out)
    assert opened.report == both[1]
    assert opened.towers.config.weight_form == "log"
    # With --init the second stage alone starts there: that is another run than the one that is kept.
    assert "other configuration or data" in " ".join(train(*files, "--stage", "second").output.split())
    alone = json.loads(train(*files, "--stage", "first", "--out", tmp_path / "alone").stdout)
    assert alone["fingerprint"] == both[0]["fingerprint"], "alone it is the run that it is among others"
