"""The one loop, its state and its folder, over a small network with batch norm and dropout, and random numbers; what a state belongs to."""

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glow.errors import InputError
from glow.records import Document
from glow.training.data import Collection, collection_hash, one_at_a_time
from glow.training.run import (
    METRICS_FILE,
    STATE_FILE,
    Loss,
    Moment,
    Place,
    Recipe,
    RunConfig,
    RunFolder,
    read_metrics,
    run,
)
from glow.training.run.loop import _fingerprint
from glow.training.towers import TrainConfig

STEPS = 12
ROWS = [{"step": step, "loss": 0.5} for step in (10, 20, 30)]
Told = Callable[[Any], None]


class Numbers:
    """Batches of random numbers."""

    def __init__(self, count: int = STEPS) -> None:
        self.count, self.asked = count, list[int]()  # steps

    def steps(self, processes: int) -> int:
        return self.count

    def batch(self, step: int, process: int, processes: int) -> Tensor:
        self.asked.append(step)
        return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


class Mean(nn.Module):
    """A network whose output goes to the mean of its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))

    def forward(self, batch: Tensor, moment: Moment) -> Loss:
        value = (self.net(batch)[:, 0] - batch.mean(1)).square().mean()
        return Loss(value, len(batch))


def recipe(objective: Mean | None = None, **changes: Any) -> Recipe[Tensor]:
    """A run of `STEPS` steps that keeps its state every fifth."""
    objective, watch = objective or Mean(), changes.pop("watch", {})
    options = {"learning_rate": 0.01, "precision": "fp32", **changes.pop("optimizer", {})}
    config = RunConfig.model_validate(
        {"name": "mean", "checkpoint_steps": 5, "optimizer": options, "watch": watch}
    )
    made = Recipe(config, Numbers(), objective.net, objective, lambda out, report: None, ["numbers"])
    return replace(made, **changes)


def trained(made: Recipe[Tensor], folder: Path, tell: Told = lambda progress: None) -> dict[str, Tensor]:
    """Weights and buffers after a run."""
    run(made, Place(folder, device="cpu"), tell)
    return {name: value.clone() for name, value in made.model.state_dict().items()}


def stop_at(step: int) -> Told:
    def tell(progress: Any) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return tell


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


@pytest.mark.parametrize("step", [3, 8, STEPS])
def test_a_stopped_run_goes_on_with_its_own_steps_to_the_same_weights_and_buffers(
    step: int, tmp_path: Path
) -> None:
    whole = trained(recipe(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(recipe(), tmp_path / "cut", stop_at(step))
    again = recipe()
    assert equal(trained(again, tmp_path / "cut"), whole)
    assert again.data.asked == [*range((step - 1) // 5 * 5, STEPS)]  # type: ignore[attr-defined]
    assert [row["step"] for row in read_metrics(tmp_path / "cut")] == [10, 12]


def test_training_stops_if_the_development_set_gets_no_better_and_ends_with_the_best_weights(
    tmp_path: Path,
) -> None:
    scores, seen = iter([0.2, 0.5, 0.4, 0.3, 0.9]), []
    made = recipe(watch={"steps": 2, "patience": 2})

    def measure(moment: Moment) -> dict[str, float]:
        seen.append({name: value.clone() for name, value in made.model.state_dict().items()})
        return {"toy": next(scores)}

    made = replace(made, measures=measure)
    report = run(made, Place(tmp_path, device="cpu"))
    assert (report["steps"], report["best_step"]) == (8, 4)
    found, best = made.model.state_dict(), seen[1]
    assert len(seen) == 4
    assert equal(found, best | {name: best[name] for name in found})
    rows = [row for row in read_metrics(tmp_path) if "dev" in row]
    assert [row["dev"]["toy"] for row in rows] == [0.2, 0.5, 0.4, 0.3]
    # A run that stopped early stays stopped.
    again = recipe(watch={"steps": 2, "patience": 2}, measures=measure)
    assert equal(trained(again, tmp_path), best)
    assert again.data.asked == []  # type: ignore[attr-defined]


def test_a_state_of_other_threads_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(recipe(), tmp_path, stop_at(8))
    path, again = tmp_path / STATE_FILE, recipe()
    with safe_open(path, framework="pt") as file:
        kept = json.loads(file.metadata()["run"])
    assert kept["made_with"] == {"torch": torch.__version__, "threads": torch.get_num_threads()}
    kept["made_with"] = {"torch": "1.0", "threads": 99}
    save_file(load_file(path), path, metadata={"run": json.dumps(kept)})
    trained(again, tmp_path)
    assert again.data.asked == [*range(5, STEPS)]  # type: ignore[attr-defined]
    assert ["'threads': 99" in record.getMessage() for record in caplog.records] == [True]


def test_minutes_become_steps_that_a_resumed_run_keeps_and_those_that_are_timed_change_nothing(
    tmp_path: Path,
) -> None:
    steps: set[int] = set()

    def tell(progress: Any) -> None:
        steps.add(progress.steps)
        if progress.step == 8 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(recipe(minutes=0.002), tmp_path / "run", tell)
    resumed = trained(recipe(minutes=0.002), tmp_path / "run", tell)
    (found,) = steps
    assert found == read_metrics(tmp_path / "run")[-1]["step"] != STEPS
    assert equal(resumed, trained(recipe(data=Numbers(found)), tmp_path / "counted"))


def write_metrics(folder: Path, tail: str = "") -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (folder / METRICS_FILE).write_text(text + tail, encoding="utf-8")


@pytest.mark.parametrize("tail", ["", "{", '{"step": 40, "lo', '{"step": 40, "loss": 0.5}'])
def test_a_half_last_line_is_left_out_and_dropped_by_a_resumed_run(tail: str, tmp_path: Path) -> None:
    write_metrics(tmp_path, tail)
    assert read_metrics(tmp_path) == ROWS
    RunFolder(tmp_path, active=True).open(RunConfig(name="x"), 20)
    assert [json.loads(line)["step"] for line in (tmp_path / METRICS_FILE).read_text().splitlines()] == [
        10,
        20,
    ]


def test_a_resumed_run_replaces_its_metrics_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while it writes leaves the old ones."""
    write_metrics(tmp_path)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        RunFolder(tmp_path, active=True).open(RunConfig(name="x"), 10)
    assert read_metrics(tmp_path) == ROWS


CONFIG = TrainConfig(name="x")
DOCUMENTS = [Document("a", {"text": ("bees find home",)}), Document("b", {"text": ("wax",)})]
COLLECTION = Collection("toy", DOCUMENTS, ["bees", "wax"], ["1", "2"], [frozenset({0}), frozenset({1})])


def fingerprint(
    config: TrainConfig = CONFIG, processes: int = 1, minutes: float = 0.0, bias: float = 0.0, **changes: Any
) -> str:
    module = nn.Linear(2, 1)
    nn.init.zeros_(module.weight)
    nn.init.constant_(module.bias, bias)
    origins = [*changes.pop("origins", []), collection_hash(replace(COLLECTION, **changes))]
    return _fingerprint(Recipe(config, Mock(), module, module, Mock(), origins, minutes=minutes), processes)


@pytest.mark.parametrize(
    "change",
    [
        {"config": CONFIG.model_copy(update={"seed": 5})},
        {"processes": 2},
        {"minutes": 1.0},
        {"bias": 1.0},
        {"origins": ["another teacher"]},
        {"documents": [DOCUMENTS[0], Document("b", {"text": ("honey",)})]},
        {"documents": [DOCUMENTS[0], Document("c", {"text": ("wax",)})]},
        {"queries": ["bees", "honey"]},
        {"relevant": [frozenset({0}), frozenset({0})]},
        {"negatives": [(), ()]},
        {"negatives": [(1, 0), ()]},
    ],
)
def test_everything_that_decides_the_weights_belongs_to_a_state(change: dict[str, Any]) -> None:
    assert fingerprint(**change) != fingerprint()


def test_a_state_belongs_to_a_renamed_folder_too_and_to_negatives_by_their_numbers() -> None:
    assert fingerprint(name="moved") == fingerprint()
    orders = ([(1, 0), ()], [(0, 1), ()], [(1,), (0,)])
    assert len({fingerprint(negatives=each) for each in orders}) == 3


def test_processes_of_a_machine_are_let_in_one_at_a_time(tmp_path: Path) -> None:
    """One that dies gives its turn back."""
    log, lock = tmp_path / "log", tmp_path / "new" / "made.lock"

    def work() -> None:
        with one_at_a_time(lock), log.open("a", encoding="utf-8", buffering=1) as file:
            file.write("in\n")
            time.sleep(0.02)
            file.write("out\n")
            os._exit(0)

    workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert log.read_text(encoding="utf-8").split() == ["in", "out"] * 3
    with pytest.raises(InputError, match="cannot write"), one_at_a_time(log / "lock"):
        pass
