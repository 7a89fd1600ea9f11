"""`glow train`: the two towers on judged pairs; a re-ranker or learned impacts on what a first search found."""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.artifact import default_model
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import ConfigError
from glow.nn import minilm_folder
from glow.training.config import TrainConfig
from glow.training.impacts import ImpactsConfig, ImpactsInputs, train_impacts
from glow.training.job import TrainInputs, train
from glow.training.rerank import RerankConfig, RerankInputs, train_reranker
from glow.training.run import Progress as TrainingProgress
from glow.training.run import TrainingDevice

__all__ = ["TrainOptions", "train_command"]

Config = TypeVar("Config", TrainConfig, RerankConfig)
Stage = Callable[[str], None]
Show = Callable[[TrainingProgress], None]


class TrainOptions(JsonOptions):
    """What to train on, from which start, and where the result goes."""

    config: Path = option(..., "TOML file with the run's options.", metavar="FILE")
    out: Path = option(..., "Checkpoint folder to write; state and metrics go to OUT.run.", metavar="DIR")
    data: tuple[Path, ...] = option(
        (), "Data folder, ours or MS MARCO's files; may be given several times.", metavar="DIR"
    )
    synthesise: tuple[Path, ...] = option(
        (), "JSON lines of documents to make training pairs from; may be given several times.", metavar="FILE"
    )
    synthesis_model: Path | None = option(
        None, "Model that filters those pairs; default: the one models/DEFAULT names.", metavar="DIR"
    )
    split: str = option("train", "Split of the judgements to train on.")
    dev: tuple[Path, ...] = option(
        (), "Data folder whose split `dev` is watched; may be given several times.", metavar="DIR"
    )
    negatives: tuple[Path, ...] = option(
        (), "File of mined hard negatives; may be given several times.", metavar="FILE"
    )
    candidates: tuple[Path, ...] = option(
        (),
        "TREC run of a first search over --data, for a re-ranker ([cross]) or learned impacts ([impacts]); one for each folder, in order.",
        metavar="FILE",
    )
    init: Path | None = option(
        None,
        "BERT-layout safetensors folder, checkpoint or model; default: all-MiniLM-L6-v2. For learned impacts: the model they are for.",
        metavar="DIR",
    )
    teacher: Path | None = option(
        None,
        "BERT-layout folder, model or checkpoint to distil from; default: all-MiniLM-L6-v2. For a re-ranker with `distill`: another's checkpoint.",
        metavar="DIR",
    )
    max_steps: int | None = option(None, "Overrides the configuration's bound.")
    seed: int | None = option(None, "Overrides the configuration's seed.")
    device: TrainingDevice = option("auto", "`auto` takes a GPU where there is one.")
    threads: int = option(0, "CPU threads; 0 takes all cores.", ge=0)


@command(TrainOptions)
def train_command(options: TrainOptions) -> None:
    """Trains the two towers on the judged pairs of one or more folders, a re-ranker, or learned impacts; the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(stderr=True)
    with _bar(console) as bar:
        stage, show = _views(bar, console)
        report = _job_of(options.config)(options, stage, show)
    if not PartialState().is_main_process:
        return
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _towers(options: TrainOptions, stage: Stage, show: Show) -> dict[str, Any]:
    if options.candidates:
        raise ConfigError(
            "--candidates is for re-rankers and learned impacts; the configuration has no table [cross] or [impacts]"
        )
    config = _override(TrainConfig.load_toml(options.config), options.max_steps, options.seed)
    inputs = TrainInputs(
        options.data,
        options.split,
        options.out,
        options.init or minilm_folder(),
        options.teacher or minilm_folder(),
        options.negatives,
        options.dev,
        options.synthesise,
        options.synthesis_model,
        options.device,
    )
    return train(config, inputs, stage, show)


def _reranker(options: TrainOptions, stage: Stage, show: Show) -> dict[str, Any]:
    _refuse(
        options, ("synthesise", "synthesis_model", "dev", "negatives"), "a re-ranker (a config with [cross])"
    )
    config = _override(RerankConfig.load_toml(options.config), options.max_steps, options.seed)
    cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    init, device = options.init or minilm_folder(), "cuda" if cuda else "cpu"
    inputs = RerankInputs(
        options.data, options.candidates, options.split, options.out, init, device, options.teacher
    )
    return train_reranker(config, inputs, stage, show)


def _impacts(options: TrainOptions, stage: Stage, show: Show) -> dict[str, Any]:
    _refuse(
        options,
        ("synthesise", "synthesis_model", "dev", "negatives", "teacher"),
        "learned impacts ([impacts])",
    )
    config = ImpactsConfig.load_toml(options.config)
    changed = config.model_dump()
    if options.max_steps is not None:
        changed["optimizer"]["steps"] = options.max_steps
    if options.seed is not None:
        changed["seed"] = options.seed
    model = options.init or default_model()
    inputs = ImpactsInputs(options.data, options.candidates, options.split, options.out, model)
    return train_impacts(ImpactsConfig.model_validate(changed), inputs, stage, show)


def _refuse(options: TrainOptions, unread: tuple[str, ...], what: str) -> None:
    if given := [name for name in unread if getattr(options, name)]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{what} does not read {flags}; leave it out")


def _job_of(path: Path) -> Callable[[TrainOptions, Stage, Show], dict[str, Any]]:
    """What a configuration trains; one that cannot be read is told of by whoever loads it."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return _towers
    return _reranker if "cross" in tables else _impacts if "impacts" in tables else _towers


def _override(config: Config, max_steps: int | None, seed: int | None) -> Config:
    changed = config.model_dump()
    if max_steps is not None:
        changed["optimizer"]["max_steps"] = max_steps
    if seed is not None:
        changed["seed"] = seed
    return type(config).model_validate(changed)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:.0f} pairs/s  {task.fields[dev]}"),
        TimeRemainingColumn(),
        console=console,
    )


def _views(bar: Progress, console: Console) -> tuple[Stage, Show]:
    """What a run tells: the name of each stage, and how far training is; lines where there is no terminal."""
    task = bar.add_task("starting", total=None, loss=float("nan"), speed=0.0, dev="")

    def stage(name: str) -> None:
        bar.update(task, description=name)
        if not console.is_terminal:
            console.print(name, markup=False)

    def show(state: TrainingProgress) -> None:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in state.dev.items())
        if shown and not console.is_terminal:
            console.print(f"step {state.step}: loss {state.loss:.4f}, dev RR@10 {shown}")
        fields: dict[str, Any] = {"loss": state.loss, "speed": state.pairs_per_second}
        if shown:
            fields["dev"] = shown
        bar.update(task, completed=state.step, total=state.steps, **fields)

    return stage, show
