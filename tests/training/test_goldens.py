"""Every kind of run: six steps against what was recorded; it goes on where it was stopped; its checkpoint opens as its kind alone.

goldens.json has each run's configuration, the losses, and each parameter's norm and product with a fixed vector, for
other processors differ in last digits: `looser` times as far as usual, and `adrift` if rounding is all of a gradient.
Nothing is drawn by dropout, whose masks a library chooses. NDRM's was recorded anew when the one loop took it over: its
batches followed one generator of the run, and follow one of each step now. `python -m tests.training.test_goldens` records anew.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from glow.artifact import file_sha256
from glow.errors import ArtifactError, ConfigError, FormatError, IntegrityError, MismatchError
from glow.options import merged
from glow.text import WordPieces
from glow.training import (
    Given,
    Progress,
    TrainConfig,
    kind_of,
    load_checkpoint,
    load_impacts,
    load_pretrained,
    load_reranker,
    train,
)
from glow.training.checkpoint import CHECKPOINT_FILE, CheckpointKind
from glow.training.data import Collection
from glow.training.impacts import ImpactsConfig
from glow.training.pretraining import PretrainConfig
from glow.training.rerank import RerankConfig
from glow.training.run import RunConfig, read_metrics
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
RUNS = {name: (golden["kind"], golden["config"]) for name, golden in GOLDENS.items() if name != "NDRM"}
OTHERS = {
    kind: ("pre-training", merged(RUNS["pre-training, masked words"][1], {"pretraining": {"kind": kind}}))
    for kind in ("retro", "crops")
}
OPENED: Mapping[CheckpointKind, tuple[str, Callable[[Path], nn.Module]]] = {
    "towers": ("encoders, softmax", lambda folder: load_checkpoint(folder).towers),
    "reranker": ("re-ranker", lambda folder: load_reranker(folder).model),
    "impacts": ("learned impacts", lambda folder: load_impacts(folder).head),
    "encoder": ("pre-training, neighbours", lambda folder: load_pretrained(folder).model),
}
Json = dict[str, Any]
Run = Callable[..., Json]
Tell = Callable[[Progress], None]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(
    collection_folder: Path, run_file: Path, bert_folder: Path, toy_model: Path, toy_corpus: Path, out: Path
) -> Run:
    """Trains, and gives the report; `dev_run` are candidates of a development set."""
    torch.set_num_threads(1)

    def trained(
        name: str,
        out: Path = out,
        tell: Tell = lambda progress: None,
        dev_run: Path | None = None,
        **changes: Any,
    ) -> Json:
        kind, config = (RUNS | OTHERS)[name]
        given: Json = {"out": out, "init": bert_folder, "device": "cpu", "data": [collection_folder]}
        given |= {
            "encoders": {"teacher": bert_folder},
            "re-ranker": {"candidates": [run_file]},
            "learned impacts": {"candidates": [run_file], "init": toy_model},
            "pre-training": {"data": [], "corpora": [toy_corpus]},
        }[kind]
        if dev_run:
            changes["watch"] = {"steps": 2, "patience": 3, "queries": 20}
            given["dev"] = given["data"] or given["corpora"]
            given |= {"dev_candidates": [dev_run]} if "candidates" in given else {}
        return train(KINDS[kind].model_validate(merged(config, changes)), Given(**given), tell=tell)

    return trained


def with_dropout(name: str) -> Json:
    """Changes of a run that is stopped: dropout, if the kind has any, and a state every second step."""
    config = (RUNS | OTHERS)[name][1]
    parts = [part for part in ("towers", "cross", "encoder") if part in config]
    return {"seed": 3, "checkpoint_steps": 2, **{part: {"dropout": 0.1} for part in parts}}


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


@pytest.mark.parametrize("name", RUNS)
def test_six_steps_are_those_that_were_recorded(name: str, run: Run, out: Path) -> None:
    losses: list[float] = []
    run(name, tell=lambda progress: losses.append(progress.loss))
    compare(name, losses, load_file(out / "model.safetensors"))


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
def test_a_finished_run_is_left_as_it_is_and_a_checkpoint_that_is_gone_is_made(
    name: str, run: Run, out: Path
) -> None:
    def written() -> Json:
        return {str(path): path.stat().st_mtime_ns for path in out.rglob("*")}

    report = run(name)
    before = written()
    assert run(name, tell=lambda progress: pytest.fail("trains again")) == json.loads(json.dumps(report))
    assert written() == before
    # A stop between the last step and the checkpoint, whose losses are not kept, leaves no loss of 0.
    last = read_metrics(out.with_name("out.run"))[-1]["loss"]
    (out / "report.json").write_text("{}", encoding="utf-8")  # as another run's
    assert run(name)["final_loss"] == last
    shutil.rmtree(out)
    assert run(name)["final_loss"] == last


@pytest.mark.parametrize("name", RUNS | OTHERS)
def test_a_stopped_run_goes_on_to_the_same_bytes_and_another_runs_state_is_refused(
    name: str, run: Run, tmp_path: Path
) -> None:
    whole, cut, steps = tmp_path / "whole", tmp_path / "cut", list[int]()
    changes = with_dropout(name)
    run(name, whole, **changes)

    def stop(progress: Progress) -> None:
        steps.append(progress.step)
        if steps == [1, 2, 3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(name, cut, stop, **changes)
    run(name, cut, stop, **changes)
    assert steps == [1, 2, 3, 3, 4, 5, 6], "it goes on from step 2, which was kept"
    assert file_sha256(whole / "model.safetensors") == file_sha256(cut / "model.safetensors")
    assert [row["step"] for row in read_metrics(tmp_path / "cut.run")] == [6]
    with pytest.raises(MismatchError, match="other configuration or data"):
        run(name, cut, **(changes | {"seed": 1}))


@pytest.mark.parametrize("name", [name for kind, (name, _) in OPENED.items() if kind != "impacts"])
def test_every_kind_measures_a_development_set_and_keeps_its_best_weights(
    name: str, run: Run, run_file: Path, tmp_path: Path
) -> None:
    seen: dict[int, float] = {}

    def note(progress: Progress) -> None:
        if progress.dev:
            seen[progress.step] = sum(progress.dev.values())

    out, changes = tmp_path / "out", with_dropout(name)
    report = run(name, out, note, run_file, **changes)
    assert list(seen) == [2, 4, 6]
    assert report["best_step"] == max(seen, key=lambda step: (seen[step], -step))
    kept = load_file(out / "model.safetensors")
    states = load_file(tmp_path / "out.run" / "best.safetensors")
    best = {each.partition(".")[2]: value for each, value in states.items()}
    assert len(best.keys() & kept.keys()) > 2
    assert all(torch.equal(best[each], kept[each]) for each in best.keys() & kept.keys())
    if name == "re-ranker":  # what decides the end is a part of the run
        other = tmp_path / "other.trec"
        other.write_text(run_file.read_text().replace(" toy\n", " other\n"), encoding="utf-8")
        with pytest.raises(MismatchError, match="other configuration or data"):
            run(name, out, dev_run=other, **changes)
    assert 0.0 <= max(seen.values()) <= 1.0 or name.startswith("pre-training")


@pytest.mark.parametrize("kind", OPENED)
def test_a_checkpoint_of_another_kind_or_without_its_header_is_refused(
    kind: CheckpointKind, run: Run, out: Path
) -> None:
    name, opened = OPENED[kind]
    run(name)
    assert kind_of(out) == kind
    wrong = next(load for _, load in OPENED.values() if load is not opened)
    with pytest.raises(FormatError, match=r"out is a checkpoint of .*, expected a checkpoint of"):
        wrong(out)
    kept = (out / CHECKPOINT_FILE).read_bytes()
    (out / CHECKPOINT_FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(IntegrityError):
        opened(out)
    (out / CHECKPOINT_FILE).write_bytes(kept)
    opened(out)
    (out / CHECKPOINT_FILE).unlink()
    with pytest.raises(ArtifactError, match=r"checkpoint\.json"):
        opened(out)


def test_one_of_several_processes_is_refused_by_learned_impacts(
    run: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one process, found WORLD_SIZE 2; start .* without torchrun"):
        run("learned impacts")
    assert not list(out.parent.glob("out*"))


if __name__ == "__main__":
    os.environ[RECORD] = "1"
    sys.exit(pytest.main([__file__, "-q", "-k", "recorded"]))
