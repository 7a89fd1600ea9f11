"""`mine`: with a model, with BM25 alone, and a second round with the new towers."""

import json
from pathlib import Path

import pytest
import torch
import typer
import typer.testing

from glow.nn import TowerConfig, TwoTowers
from glow.runtime import Model
from glow.text import Preprocessor
from glow.training.checkpoint import save_checkpoint
from glow.training.commands import mine_command, train
from glow.training.data import Given, read_collection
from glow.training.negatives import read_header, read_negatives
from glow.training.towers import TrainConfig
from tests.training.mined_folder import SCHEMA, write_mined_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Path) -> Path:
    return write_mined_folder(tmp_path_factory.mktemp("data") / "toy", toy_corpus)


def run(*arguments: object) -> typer.testing.Result:
    app = typer.Typer()
    app.command("mine")(mine_command)
    return typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_mines_with_a_model(folder: Path, toy_model: Path, tmp_path: Path) -> None:
    arguments = ("--data", folder, "--out", tmp_path / "a.jsonl", "--model", toy_model, "--threads", 1)
    done = run(*arguments, "--min-rank", 2, "--max-rank", 30, "--count", 3, "--margin", 0.99)
    assert done.exit_code == 0, done.output
    header = read_header(tmp_path / "a.jsonl")
    assert header.options == {
        "retriever": "dense",
        "first": 2,
        "last": 30,
        "count": 3,
        "margin": 0.99,
        "seed": 0,
    }
    found = read_negatives(tmp_path / "a.jsonl", read_collection(folder, "train", SCHEMA))
    assert sum(map(len, found)) == json.loads(done.stdout)["negatives"] > 50


def test_bm25_alone_opens_no_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # there is no models/DEFAULT here
    monkeypatch.setattr("glow.artifact.model.MODELS_PACKAGE", "of_no_installation")
    arguments = ("--data", folder, "--out", "b.jsonl", "--min-rank", 1, "--threads", 1)
    assert run(*arguments, "--retriever", "lexical").exit_code == 0
    assert read_header(tmp_path / "b.jsonl").model is None
    refused = run(*arguments)
    assert refused.exit_code == 3
    assert "no default model" in refused.output
    refused = run(*arguments, "--retriever", "lexical", "--max-rank", 0 + 1, "--min-rank", 2)
    assert refused.exit_code == 2
    assert "from 2 to 1" in refused.output


def test_two_rounds_mine_with_the_newer_towers(folder: Path, toy_model: Path, tmp_path: Path) -> None:
    """Train, mine with the checkpoint, go on from it with those negatives, mine again."""
    config = TrainConfig.model_validate(
        {
            "name": "round",
            "towers": {"init_layers": [0]},
            "objective": {"hard_negatives": 2},
            "optimizer": {"batch_size": 16, "max_steps": 6, "learning_rate": 3e-3, "precision": "fp32"},
        }
    )
    init, negatives, losses = untrained(tmp_path / "untrained", config, toy_model), [], []
    for name in ("first", "second"):
        out, file = tmp_path / name, tmp_path / f"{name}.jsonl"
        given = Given(data=[folder], out=out, init=init, negatives=negatives, device="cpu")
        losses.append(train(config, given)["final_loss"])
        done = run("--data", folder, "--out", file, "--model", out, "--threads", 1, "--min-rank", 2)
        assert done.exit_code == 0, done.output
        init, negatives = out, [file]
    headers = [read_header(tmp_path / f"{name}.jsonl").model for name in ("first", "second")]
    assert headers[0] is not None
    assert headers[1] is not None
    assert headers[0].sha256 != headers[1].sha256
    collection = read_collection(folder, "train", SCHEMA)
    first, second = (read_negatives(tmp_path / f"{name}.jsonl", collection) for name in ("first", "second"))
    assert any(first)
    assert first != second
    # The second round without the file is another one: the negatives were learned from.
    plain = Given(data=[folder], out=tmp_path / "plain", init=tmp_path / "first", device="cpu")
    assert train(config, plain)["final_loss"] != losses[1]


def untrained(folder: Path, config: TrainConfig, toy_model: Path) -> Path:
    """A checkpoint of tiny towers with the toy model's vocabulary."""
    model = Model.open(toy_model).preprocessor
    torch.manual_seed(0)
    shape = TowerConfig(vocabulary=model.pieces.size, hidden=16, layers=1, heads=2, intermediate=32)
    preprocessor = Preprocessor(model.pieces, SCHEMA, config.weighting, model.terms)
    save_checkpoint(folder, TwoTowers(shape, SCHEMA), preprocessor, {})
    return folder
