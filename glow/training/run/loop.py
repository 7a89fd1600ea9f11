"""The training loop: steps over a recipe's batches, resumable, on one device or in several processes.

Each process (`accelerate launch` on GPUs, `torchrun` on a CPU) takes its own batches, and gradients are averaged, as the
released code does with Horovod.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list
from torch import nn

from glow.errors import ConfigError
from glow.training.checkpoint import known_report
from glow.training.run.recipe import (
    Loss,
    Moment,
    Position,
    Progress,
    Recipe,
    make_optimizer,
    parameters_hash,
    parts_hash,
    set_rates,
)
from glow.training.run.state import RunFolder, State, read_metrics

TrainingDevice = Literal["auto", "cpu", "cuda"]
Value = TypeVar("Value")


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """A context in which matrix products have the given precision."""
    return lambda: torch.autocast(device.type, torch.bfloat16, enabled=precision != "fp32")


def check_single_process(what: str) -> None:
    """Raises ConfigError in a run of several processes, which would all write the same files."""
    if (count := int(os.environ.get("WORLD_SIZE") or 1)) > 1:
        raise ConfigError(
            f"{what} in one process, found WORLD_SIZE {count}; start `glow train` without torchrun or accelerate launch"
        )


class Processes:
    """A run's processes, seen from this one."""

    def __init__(self, device: TrainingDevice) -> None:
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise ConfigError("--device cuda needs a GPU, and there is none; give --device cpu or auto")
        # Without a GPU accelerate needs cpu=True, or processes do not find each other.
        self._accelerator = Accelerator(cpu=device == "cpu" or not has_gpu)
        self.device: torch.device = self._accelerator.device
        self.index: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes
        self.is_main: bool = self._accelerator.is_main_process

    def share(self, module: nn.Module) -> None:
        """Copies the first process's parameters, which may be random, to all."""
        for parameter in module.parameters():
            parameter.data = broadcast(parameter.data)

    def agree(self, make: Callable[[], Value]) -> Value:
        """Returns the first process's result in all processes."""
        shared = [make() if self.is_main else None]
        if self.count > 1:
            broadcast_object_list(shared)
        found: Value = shared[0]  # type: ignore[assignment]
        return found

    def average(self, module: nn.Module) -> None:
        """Averages each parameter's gradient over all processes."""
        if self.count > 1:
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad = self._accelerator.reduce(parameter.grad, "mean")

    def wait(self) -> None:
        """Waits for all processes."""
        self._accelerator.wait_for_everyone()


TOLD_STEPS = 10
RECENT = 50
TIMED_STEPS, UNTIMED_STEPS = 5, 2
"""Numbers of timed and of earlier warm-up steps of a run with a time limit."""
Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Place:
    """The directories and device of a run."""

    folder: Path  # directory of state and metrics
    out: Path | None = None  # checkpoint directory; None: no checkpoint
    device: TrainingDevice = "auto"  # `auto` takes a GPU if there is one


def run(recipe: Recipe[Any], place: Place, tell: Tell = lambda progress: None) -> dict[str, Any]:
    """Trains to the last step, or until the development measure stops improving; the same call resumes a stopped run."""
    start, config, watch = time.monotonic(), recipe.config, recipe.config.watch
    own = Processes("cpu" if recipe.on_cpu else place.device)
    fingerprint = own.agree(lambda: _fingerprint(recipe, own.count))
    if place.out is not None and (known := known_report(place.out, fingerprint)) is not None:
        return known
    objective = recipe.objective.to(own.device)
    optimizer = make_optimizer(objective, recipe.groups, config.optimizer, recipe.adam)
    state = State(place.folder, objective, optimizer, fingerprint)
    state.load()
    own.share(objective)
    position, log = state.position, RunFolder(place.folder, active=own.is_main)
    objective.train()
    position.steps = position.steps or own.agree(lambda: _planned(recipe, own))
    log.open(config, position.step)
    losses, units, began = [], 0, time.monotonic()
    for step in range(position.step, position.steps):
        if watch.patience and position.looks_since_best >= watch.patience:
            break
        moment = _moment(recipe, own, step, position.steps)
        rate = config.optimizer.learning_rate * recipe.rate(step, position.steps)
        set_rates(optimizer, rate)
        loss = _step(recipe, own, optimizer, moment)
        position.step, units = step + 1, units + loss.units * own.count
        losses.append(float((loss.value if loss.shown is None else loss.shown).detach()))
        dev = _look(recipe, own, moment, position, log)
        mean, speed = float(np.mean(losses[-RECENT:])), units / (time.monotonic() - began)
        told = Progress(step + 1, position.steps, losses[-1], mean, speed, recipe.unit, loss.figures, dev)
        tell(told)
        if moment.is_told or dev:
            log.record(told, rate)
        if own.is_main and (dev or (step + 1) % config.checkpoint_steps == 0 or step + 1 == position.steps):
            state.save()
    own.wait()
    if watch.patience and position.best_step:
        log.load_best(objective)
    objective.eval()
    report = _report(recipe, own, place, position, losses)
    report |= {"fingerprint": fingerprint, "seconds": round(time.monotonic() - start, 1)}
    if place.out is not None and own.is_main:
        recipe.model.cpu()
        recipe.keep(place.out, report)
    own.wait()  # the next stage starts from the checkpoint
    return report


def describe_run(recipe: Recipe[Any], processes: int = 1) -> dict[str, Any]:
    """Describes the plan of a run, for `--dry` and reports."""
    trained = (parameter for parameter in recipe.objective.parameters() if parameter.requires_grad)
    return {
        "config": recipe.config.model_dump(mode="json"),
        **recipe.about,
        "steps": _steps(recipe, processes),
        "processes": processes,
        "parameters": sum(parameter.numel() for parameter in recipe.model.parameters()),
        "learns": sum(parameter.numel() for parameter in trained),
    }


def _report(
    recipe: Recipe[Any], own: Processes, place: Place, position: Position, losses: list[float]
) -> dict[str, Any]:
    """The report of a run."""
    # A run stopped between its last step and its checkpoint has no steps left; its metrics have every tenth loss.
    recent = losses[-RECENT:] or [row["loss"] for row in read_metrics(place.folder)[-RECENT // TOLD_STEPS :]]
    return describe_run(recipe, own.count) | {
        "steps": position.step,
        "best_step": position.best_step or None,
        "final_loss": sum(recent) / max(len(recent), 1),
    }


def _steps(recipe: Recipe[Any], processes: int) -> int:
    steps = recipe.data.steps(processes)
    if not steps:
        raise ConfigError(
            f"an epoch has too few batches for {processes} processes; start fewer processes, or lower batch_size"
        )
    return steps


def _fingerprint(recipe: Recipe[Any], processes: int) -> str:
    """SHA-256 of all inputs that decide a run's weights, independent of the files' locations."""
    config = recipe.config.model_dump_json()
    counts = (str(processes), f"{recipe.minutes:g}")
    return parts_hash([config, *counts, *recipe.origins, parameters_hash(recipe.objective)])


def _moment(recipe: Recipe[Any], own: Processes, step: int, steps: int) -> Moment:
    precision = recipe.config.optimizer.precision
    is_told = (step + 1) % TOLD_STEPS == 0 or step + 1 == steps
    return Moment(own.device, autocast(precision, own.device), precision, step, steps, is_told)


def _step(recipe: Recipe[Any], own: Processes, optimizer: torch.optim.Optimizer, moment: Moment) -> Loss:
    """One step of the optimizer."""
    # Each step has its own seed, so that a resumed run draws the same numbers as an uninterrupted one.
    torch.manual_seed((recipe.config.seed * 1_000_003 + moment.step) * 64 + own.index)
    optimizer.zero_grad(set_to_none=True)
    loss = _gradients(recipe, own, moment)
    own.average(recipe.objective)
    nn.utils.clip_grad_norm_(recipe.objective.parameters(), recipe.config.optimizer.clip_norm)
    optimizer.step()
    return loss


def _gradients(recipe: Recipe[Any], own: Processes, moment: Moment) -> Loss:
    """The loss of a step's batch; adds its gradients."""
    loss: Loss = recipe.objective(recipe.data.batch(moment.step, own.index, own.count), moment)
    loss.value.backward()  # type: ignore[no-untyped-call]
    return loss


def _look(
    recipe: Recipe[Any], own: Processes, moment: Moment, position: Position, log: RunFolder
) -> dict[str, float]:
    """Measures the development set if that is due, and saves the best weights so far."""
    watch, measures = recipe.config.watch, recipe.measures
    is_last = position.step == position.steps
    if measures is None or not watch.steps or not (is_last or position.step % watch.steps == 0):
        return {}
    # Processes must stop together, but their figures may differ in the last digits.
    figures = own.agree(lambda: measures(moment))
    if position.look(float(np.mean(list(figures.values())))) and watch.patience:
        log.keep_best(recipe.objective)
    return figures


def _planned(recipe: Recipe[Any], own: Processes) -> int:
    """Steps of a run; with a time limit, estimated from the speed of a few trial steps."""
    steps = _steps(recipe, own.count)
    if not recipe.minutes:
        return steps
    buffers = [(each, each.clone()) for each in recipe.objective.buffers()]
    began = time.monotonic()
    for step in range(UNTIMED_STEPS + TIMED_STEPS):
        if step == UNTIMED_STEPS:
            began = time.monotonic()
        _gradients(recipe, own, replace(_moment(recipe, own, step, steps), is_told=False))
    recipe.objective.zero_grad(set_to_none=True)
    for each, before in buffers:
        each.copy_(before)
    return max(1, int(recipe.minutes * 60.0 * TIMED_STEPS / (time.monotonic() - began)))
