"""A configuration of several stages: what each changes, where it starts, and what `glow train` does with them."""

import json
from pathlib import Path

import pytest
import typer.testing

from glow.cli import app
from glow.errors import ConfigError
from glow.training import Given, load_checkpoint
from glow.training.commands import read_stages
from glow.training.impacts import ImpactsConfig
from glow.training.pretraining import PretrainConfig
from glow.training.rerank import RerankConfig
from glow.training.run import RunConfig
from glow.training.towers import TrainConfig

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
def file(tmp_path: Path) -> Path:
    path = tmp_path / "second.toml"
    path.write_text(STAGES, encoding="utf-8")
    return path


def test_a_stage_changes_what_stands_above_it_and_starts_from_the_one_before(file: Path) -> None:
    first, second = read_stages(file)
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
        read_stages(file, "third")
    (only,) = read_stages(file, "second")
    assert (only.config, only.before, only.is_last) == (second.config, "", True)
    assert only.given(given, has_init=False).out == given.out
    assert [each.config.seed for each in read_stages(file, seed=5, steps=1)] == [5, 5]
    assert [each.config.optimizer.max_steps for each in read_stages(file, steps=1)] == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", TrainConfig),
        ('kind = "towers"\n', TrainConfig),
        ('kind = "reranker"\n[cross]\n', RerankConfig),
        ('kind = "impacts"\n[impacts]\n', ImpactsConfig),
        ('kind = "pretraining"\n', PretrainConfig),
    ],
)
def test_the_kind_is_named(text: str, kind: type[RunConfig], tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(f'name = "one"\n{text}', encoding="utf-8")
    (stage,) = read_stages(path)
    assert type(stage.config) is kind
    assert (stage.before, stage.is_last) == ("", True)


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
def test_every_fault_of_every_stage_is_named(old: str, new: str, said: str, file: Path) -> None:
    file.write_text(STAGES.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        read_stages(file)


def test_the_command_runs_all_stages_or_one_and_dry_takes_no_step(
    file: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    files = ("--config", file, "--data", collection_folder, "--init", bert_folder, "--out", out)

    def train(*more: str) -> typer.testing.Result:
        fixed = ["train", *map(str, files), "--device", "cpu", "--threads", "1"]
        return typer.testing.CliRunner().invoke(app, [*fixed, *more])

    dry = json.loads(train("--dry").stdout)["stages"]
    assert [each["config"]["name"] for each in dry] == ["first", "second"]
    assert dry[0]["steps"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {file.name}
    both = json.loads(train().stdout)["stages"]
    assert [each["steps"] for each in both] == [2, 3]
    opened = load_checkpoint(out)
    assert opened.report == both[1]
    assert opened.towers.config.weight_form == "log"
    # With --init the second stage alone starts there: that is another run than the one that is kept.
    assert "other configuration or data" in " ".join(train("--stage", "second").output.split())
    alone = json.loads(train("--stage", "first", "--out", str(tmp_path / "alone")).stdout)
    assert alone["fingerprint"] == both[0]["fingerprint"], "alone it is the run that it is among others"
