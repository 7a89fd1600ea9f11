"""Every kind of run: six steps against what was recorded; finished runs, several processes.

goldens.json has each run's configuration, the losses, and each parameter's norm and product with a fixed vector, for
other processors differ in last digits: `looser` times as far as usual, and `adrift` if rounding is all of a gradient.
Nothing is drawn by dropout, whose masks a library chooses. NDRM's was recorded anew when the one loop took it over: its
batches followed one generator of the run, and follow one of each step now. `python -m tests.training.test_goldens` records anew.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glow.errors import ConfigError
from glow.text import WordPieces
from glow.training import Given, TrainConfig, train
from glow.training.data import Collection
from glow.training.impacts import ImpactsConfig
from glow.training.pretraining import PretrainConfig
from glow.training.rerank import RerankConfig
from glow.training.run import RunConfig
from research.ndrm import Options, TermCollection, bm25, rank
from research.ndrm import train as train_ndrm
from research.ndrm_model import ConformerConfig, Ndrm, NdrmConfig

RECORDED = Path(__file__).with_name("goldens.json")
GOLDENS = json.loads(RECORDED.read_bytes())
RECORD = "GLOW_RECORD_GOLDENS"
LOSS, WEIGHT = 1e-5, 1e-4
KINDS: dict[str, type[RunConfig]] = {
    "encoders": TrainConfig,
    "re-ranker": RerankConfig,
    "learned impacts": ImpactsConfig,
    "pre-training": PretrainConfig,
}

Json = dict[str, Any]
Run = Callable[..., tuple[Json, list[float]]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(
    collection_folder: Path, run_file: Path, bert_folder: Path, toy_model: Path, toy_corpus: Path, out: Path
) -> Run:
    """Trains; gives the report, and the mean loss after each step."""
    folders, searches = [collection_folder], [run_file]
    torch.set_num_threads(1)

    def trained(kind: str, config: Json, out: Path = out) -> Any:
        losses: list[float] = []
        made = KINDS[kind].model_validate(config)
        more: Json = {
            "encoders": {"data": folders, "teacher": bert_folder},
            "re-ranker": {"data": folders, "candidates": searches},
            "learned impacts": {"data": folders, "candidates": searches, "init": toy_model},
            "pre-training": {"corpora": [toy_corpus]},
        }[kind]
        given = Given(**{"out": out, "init": bert_folder, "device": "cpu"} | more)
        return train(made, given, tell=lambda progress: losses.append(progress.loss)), losses

    return trained


def compare(name: str, losses: list[float], weights: dict[str, torch.Tensor]) -> None:
    golden, found = GOLDENS[name], {}
    for parameter, value in sorted(weights.items()):
        if value.is_floating_point() and parameter not in golden["adrift"]:
            flat = value.double().flatten()
            product = flat @ torch.cos(torch.arange(len(flat), dtype=torch.float64))
            found[parameter] = f"{float(flat.norm()):.6f} {float(product):.6f}"
    if os.environ.get(RECORD):
        golden |= {"losses": [float(f"{loss:.7g}") for loss in losses], "weights": found}
        RECORDED.write_text(json.dumps(GOLDENS, indent=1) + "\n", encoding="utf-8")
    assert losses == pytest.approx(golden["losses"], rel=LOSS * golden["looser"])
    assert found.keys() == golden["weights"].keys()
    for parameter, kept in golden["weights"].items():
        numbers = [*map(float, kept.split())]
        near = pytest.approx(numbers, abs=WEIGHT * golden["looser"] * max(1.0, numbers[0]))
        assert [*map(float, found[parameter].split())] == near, parameter


@pytest.mark.parametrize("name", [name for name in GOLDENS if name != "NDRM"])
def test_six_steps_are_those_that_were_recorded(name: str, run: Run, out: Path) -> None:
    golden = GOLDENS[name]
    compare(name, run(golden["kind"], golden["config"])[1], load_file(out / "model.safetensors"))


def test_six_steps_of_ndrm_are_those_that_were_recorded(toy_collection: Collection, toy_model: Path) -> None:
    terms = TermCollection(toy_collection, WordPieces(toy_model / "vocab.txt"))
    wanted = np.unique(np.concatenate(terms.queries))
    hundred = [rows for rows, _ in rank(terms, wanted, bm25(terms, wanted), 10)]
    torch.manual_seed(0)
    conformer = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)
    model = Ndrm(NdrmConfig(words=len(terms.vocabulary), embedding=16, kind="both", conformer=conformer))
    losses = train_ndrm(model, terms, hundred, Options(**GOLDENS["NDRM"]["config"]))
    compare("NDRM", losses, model.state_dict())


@pytest.mark.parametrize(
    "name", ["encoders, softmax", "re-ranker", "learned impacts", "pre-training, masked words"]
)
def test_a_finished_run_is_left_as_it_is(name: str, run: Run, out: Path) -> None:
    def written() -> Json:
        return {str(path): path.stat().st_mtime_ns for path in out.rglob("*")}

    golden = GOLDENS[name]
    report, _ = run(golden["kind"], golden["config"])
    before = written()
    assert run(golden["kind"], golden["config"]) == (json.loads(json.dumps(report)), [])
    assert written() == before
    # A stop between the last step and the checkpoint, whose losses are not kept, leaves no loss of 0.
    (out / "report.json").write_text("{}", encoding="utf-8")
    assert run(golden["kind"], golden["config"])[0]["final_loss"] != 0.0


def test_one_of_several_processes_is_refused_by_learned_impacts(
    run: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one process, found WORLD_SIZE 2; start .* without torchrun"):
        run("learned impacts", GOLDENS["learned impacts"]["config"])
    assert not list(out.parent.glob("out*"))


if __name__ == "__main__":
    os.environ[RECORD] = "1"
    sys.exit(pytest.main([__file__, "-q", "-k", "recorded"]))
