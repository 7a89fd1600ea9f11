"""What holds for every kind of run: it goes on where it was stopped, alone for itself, and its checkpoint opens as its own kind alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from glow.artifact import file_sha256
from glow.errors import ArtifactError, FormatError, IntegrityError, MismatchError
from glow.options import merged
from glow.training import (
    Given,
    Progress,
    kind_of,
    load_checkpoint,
    load_impacts,
    load_pretrained,
    load_reranker,
    train,
)
from glow.training.checkpoint import CHECKPOINT_FILE, CheckpointKind
from glow.training.run import RunConfig, read_metrics
from tests.training.test_goldens import GOLDENS, KINDS

CONFIGS = {name: golden["config"] for name, golden in GOLDENS.items() if name != "NDRM"}
CONFIGS |= {
    kind: merged(CONFIGS["pre-training, masked words"], {"pretraining": {"kind": kind}})
    for kind in ("retro", "crops")
}
OPENED: Mapping[CheckpointKind, tuple[str, Callable[[Path], nn.Module]]] = {
    "towers": ("encoders, softmax", lambda folder: load_checkpoint(folder).towers),
    "reranker": ("re-ranker", lambda folder: load_reranker(folder).model),
    "impacts": ("learned impacts", lambda folder: load_impacts(folder).head),
    "encoder": ("pre-training, neighbours", lambda folder: load_pretrained(folder).model),
}
Train = Callable[..., dict[str, Any]]
Tell = Callable[[Progress], None]


@pytest.fixture
def run(
    collection_folder: Path, run_file: Path, bert_folder: Path, toy_model: Path, toy_corpus: Path
) -> Train:
    """Trains with dropout, if the kind has any, and keeps the state every second step."""

    def trained(
        name: str, out: Path, seed: int = 3, tell: Tell = lambda progress: None, dev_run: Path | None = None
    ) -> Any:
        """Watches a development set with the candidates `dev_run`."""
        kind = GOLDENS.get(name, {"kind": "pre-training"})["kind"]
        changes: dict[str, Any] = {"seed": seed, "checkpoint_steps": 2}
        changes |= {
            part: {"dropout": 0.1} for part in ("towers", "cross", "encoder") if part in CONFIGS[name]
        }
        folders: dict[str, Any] = {"data": [collection_folder], "teacher": bert_folder}
        if kind in ("re-ranker", "learned impacts"):
            folders = {"data": [collection_folder], "candidates": [run_file]}
        if kind == "pre-training":
            folders = {"corpora": [toy_corpus]}
        if dev_run:
            changes["watch"] = {"steps": 2, "patience": 3, "queries": 20}
            folders["dev"] = folders.get("data") or folders["corpora"]
            folders |= {"dev_candidates": [dev_run]} if "candidates" in folders else {}
        init = toy_model if kind == "learned impacts" else bert_folder
        config: RunConfig = KINDS[kind].model_validate(merged(CONFIGS[name], changes))
        return train(config, Given(out=out, init=init, device="cpu", **folders), tell=tell)

    return trained


@pytest.mark.parametrize("name", CONFIGS)
def test_a_stopped_run_goes_on_to_the_same_bytes_and_another_runs_state_is_refused(
    name: str, run: Train, tmp_path: Path
) -> None:
    whole, cut, steps = tmp_path / "whole", tmp_path / "cut", list[int]()
    run(name, whole)

    def stop(progress: Progress) -> None:
        steps.append(progress.step)
        if steps == [1, 2, 3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(name, cut, tell=stop)
    run(name, cut, tell=stop)
    assert steps == [1, 2, 3, 3, 4, 5, 6], "it goes on from step 2, which was kept"
    assert file_sha256(whole / "model.safetensors") == file_sha256(cut / "model.safetensors")
    assert [row["step"] for row in read_metrics(tmp_path / "cut.run")] == [6]
    with pytest.raises(MismatchError, match="other configuration or data"):
        run(name, cut, seed=1)


@pytest.mark.parametrize("name", [name for kind, (name, _) in OPENED.items() if kind != "impacts"])
def test_every_kind_measures_a_development_set_and_keeps_its_best_weights(
    name: str, run: Train, run_file: Path, tmp_path: Path
) -> None:
    seen: dict[int, float] = {}

    def note(progress: Progress) -> None:
        if progress.dev:
            seen[progress.step] = sum(progress.dev.values())

    report = run(name, tmp_path / "out", tell=note, dev_run=run_file)
    assert list(seen) == [2, 4, 6]
    assert report["best_step"] == max(seen, key=lambda step: (seen[step], -step))
    kept = load_file(tmp_path / "out" / "model.safetensors")
    states = load_file(tmp_path / "out.run" / "best.safetensors")
    best = {each.partition(".")[2]: value for each, value in states.items()}
    assert len(best.keys() & kept.keys()) > 2
    assert all(torch.equal(best[each], kept[each]) for each in best.keys() & kept.keys())
    if name == "re-ranker":  # what decides the end is a part of the run
        other = tmp_path / "other.trec"
        other.write_text(run_file.read_text().replace(" toy\n", " other\n"), encoding="utf-8")
        with pytest.raises(MismatchError, match="other configuration or data"):
            run(name, tmp_path / "out", dev_run=other)
    assert 0.0 <= max(seen.values()) <= 1.0 or name.startswith("pre-training")


@pytest.mark.parametrize("kind", OPENED)
def test_a_checkpoint_of_another_kind_or_without_its_header_is_refused(
    kind: CheckpointKind, run: Train, tmp_path: Path
) -> None:
    (name, opened), out = OPENED[kind], tmp_path / "out"
    run(name, out)
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
