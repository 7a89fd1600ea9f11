"""The training loop: steps over a recipe's batches, resumable, on one device or in several processes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glow.errors import ConfigError
from glow.training.run.checkpoint import known_report
from glow.training.run.folder import RunFolder, read_metrics
from glow.training.run.hashes import parameters_hash, parts_hash
from glow.training.run.optimizer import make_optimizer, set_rates
from glow.training.run.processes import Processes, TrainingDevice, autocast
from glow.training.run.progress import Position, Progress
from glow.training.run.recipe import Loss, Moment, Recipe
from glow.training.run.state import State

__all__ = ["Place", "Tell", "describe_run", "run"]

TOLD_STEPS = 10
RECENT = 50
TIMED_STEPS, UNTIMED_STEPS = 5, 2
"""Numbers of timed and of earlier warm-up steps of a run with a time limit."""
Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Place:
    """The directories and device of a run.

    Attributes:
        folder: directory of state and metrics.
        out: checkpoint directory; None: no checkpoint.
        device: `auto` takes a GPU if there is one.
    """

    folder: Path
    out: Path | None = None
    device: TrainingDevice = "auto"


def run(recipe: Recipe[Any], place: Place, tell: Tell = lambda progress: None) -> dict[str, Any]:
    """Trains to the last step, or until the development measure stops improving; the same call resumes a stopped run.

    Args:
        recipe: the recipe; its model is trained in place, and ends in evaluation mode.
        place: directories and device.
        tell: called with the progress after every step.

    Returns:
        The report in the checkpoint; for a finished run, the existing one.

    Raises:
        ConfigError: if the device is missing or does not support the precision, or there are fewer batches than
            processes.
        MismatchError: if the saved state belongs to another run.
    """
    start, config, watch = time.monotonic(), recipe.config, recipe.config.watch
    own = Processes(config.optimizer.precision, "cpu" if recipe.on_cpu else place.device)
    fingerprint = own.agree(lambda: _fingerprint(recipe, own.count))
    if place.out is not None and (known := known_report(place.out, fingerprint)) is not None:
        return known
    objective = recipe.objective.to(own.device)
    optimizer = make_optimizer(objective, recipe.groups, config.optimizer, recipe.adam)
    stepper = own.prepare(optimizer)
    state = State(place.folder, objective, optimizer, fingerprint, own.scaler)
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
        loss = _step(recipe, own, stepper, moment)
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


def _step(recipe: Recipe[Any], own: Processes, stepper: torch.optim.Optimizer, moment: Moment) -> Loss:
    """One step of the optimizer."""
    # Each step has its own seed, so that a resumed run draws the same numbers as an uninterrupted one.
    torch.manual_seed((recipe.config.seed * 1_000_003 + moment.step) * 64 + own.index)
    stepper.zero_grad(set_to_none=True)
    loss = _gradients(recipe, own, moment)
    own.average(recipe.objective)
    own.clip(recipe.objective, recipe.config.optimizer.clip_norm)
    stepper.step()
    return loss


def _gradients(recipe: Recipe[Any], own: Processes, moment: Moment) -> Loss:
    """The loss of a step's batch; adds its gradients."""
    loss: Loss = recipe.objective(recipe.data.batch(moment.step, own.index, own.count), moment)
    own.backward(loss.value)
    for again in loss.later:
        again()
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
