"""Every kind of run: six steps against what was recorded; finished runs, several processes, fp16.

goldens.json has each run's configuration, the losses, and each parameter's norm and product with a fixed vector, for
other processors differ in last digits: `looser` times as far as usual, and `adrift` if rounding is all of a gradient.
Nothing is drawn by dropout, whose masks a library chooses. `python -m tests.training.test_goldens` records anew.
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
from glow.nn import ConformerConfig, Ndrm, NdrmConfig
from glow.text import WordPieces
from glow.training import TrainConfig, TrainInputs, train
from glow.training.data import Collection
from glow.training.impacts import ImpactsConfig, ImpactsInputs, train_impacts
from glow.training.pretraining import PretrainConfig, PretrainInputs, pretrain
from glow.training.rerank import RerankConfig, RerankInputs, train_reranker
from research.ndrm.search import bm25, rank
from research.ndrm.train import Options
from research.ndrm.train import train as train_ndrm
from research.ndrm.words import TermCollection

RECORDED = Path(__file__).with_name("goldens.json")
GOLDENS = json.loads(RECORDED.read_bytes())
RECORD = "GLOW_RECORD_GOLDENS"
LOSS, WEIGHT = 1e-5, 1e-4
ALONE = ("re-ranker", "learned impacts")

Json = dict[str, Any]
Run = Callable[..., tuple[Json, list[float]]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The checkpoint that a run writes."""
    return tmp_path / "out"


@pytest.fixture
def run(
    collection_folder: Path, run_file: Path, bert_folder: Path, toy_model: Path, toy_corpus: Path, out: Path
) -> Run:
    """Trains; gives the report, and the mean loss after each step."""
    folders, searches = [collection_folder], [run_file]
    torch.set_num_threads(1)

    def trained(kind: str, config: Json, out: Path = out, teacher: Path | None = None) -> Any:
        losses: list[float] = []
        told = {"on_progress": lambda progress: losses.append(progress.loss)}
        if kind == "encoders":
            inputs = TrainInputs(folders, "train", out, bert_folder, bert_folder, device="cpu")
            return train(TrainConfig.model_validate(config), inputs, **told), losses
        if kind == "re-ranker":
            given = RerankInputs(folders, searches, "train", out, bert_folder, teacher=teacher)
            return train_reranker(RerankConfig.model_validate(config), given, **told), losses
        if kind == "learned impacts":
            over = ImpactsInputs(folders, searches, "train", out, toy_model)
            return train_impacts(ImpactsConfig.model_validate(config), over, **told), losses
        texts = PretrainInputs([toy_corpus], out, bert_folder, "cpu")
        return pretrain(PretrainConfig.model_validate(config), texts, **told), losses

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
    teacher = out.with_name("teacher") if "teacher" in golden else None
    if teacher is not None:
        run(golden["kind"], golden["teacher"], teacher)
    compare(
        name, run(golden["kind"], golden["config"], teacher=teacher)[1], load_file(out / "model.safetensors")
    )


def test_six_steps_of_ndrm_are_those_that_were_recorded(toy_collection: Collection, toy_model: Path) -> None:
    terms = TermCollection(toy_collection, WordPieces(toy_model / "vocab.txt"))
    wanted = np.unique(np.concatenate(terms.queries))
    hundred = [rows for rows, _ in rank(terms, wanted, bm25(terms, wanted), 10)]
    torch.manual_seed(0)
    conformer = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)
    model = Ndrm(NdrmConfig(words=len(terms.vocabulary), embedding=16, kind="both", conformer=conformer))
    losses = train_ndrm(model, terms, hundred, Options(**GOLDENS["NDRM"]["config"]))
    compare("NDRM", losses, model.state_dict())


@pytest.mark.parametrize("name", (*ALONE, "pre-training, masked words"))
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


@pytest.mark.parametrize("name", ALONE)
def test_one_of_several_processes_is_refused(
    name: str, run: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one process, found WORLD_SIZE 2; start .* without torchrun"):
        run(name, GOLDENS[name]["config"])
    assert not list(out.parent.glob("out*"))


def test_a_re_ranker_in_fp16_needs_a_gpu_and_a_scale(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GOLDENS["re-ranker"]["config"]
    config = config | {"optimizer": config["optimizer"] | {"precision": "fp16"}}
    with pytest.raises(ConfigError, match="'fp16' needs a GPU"):
        run("re-ranker", config)
    # A CPU can compute in it all the same, so the scale can be looked at.
    monkeypatch.setattr("glow.training.rerank.trainer.check_precision", lambda *_: None)
    backward, clip = torch.Tensor.backward, torch.nn.utils.clip_grad_norm_
    scaled: list[float] = []
    norms: list[float] = []
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: (scaled.append(loss.item()), backward(loss)))
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *a: norms.append(float(clip(*a))))
    run("re-ranker", config)
    assert len(scaled) == len(norms) == len(GOLDENS["re-ranker"]["losses"])
    assert min(scaled) > 1000.0 > norms[-1], "what is clipped is brought back"


if __name__ == "__main__":
    os.environ[RECORD] = "1"
    sys.exit(pytest.main([__file__, "-q", "-k", "recorded"]))
