"""Command line of training: `python -m glow.training train --config configs/NAME.toml --data DIR --out CKPT`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from accelerate import PartialState
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.evaluation import guarded
from glow.nn import minilm_folder
from glow.training.commands import mine_command, synthesise_command
from glow.training.config import TrainConfig
from glow.training.loop import TrainingDevice
from glow.training.progress import Progress as TrainingProgress
from glow.training.train import TrainInputs, train

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train GLOW's two towers.")


@app.callback()
def _main() -> None:
    """Train GLOW's two towers."""


@app.command("train")
def train_command(
    config: Annotated[Path, typer.Option(help="TOML file with the run's options.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write; state and metrics go to OUT.run.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Data folder, ours or MS MARCO's files; may be given several times."),
    ] = None,
    synthesise: Annotated[
        list[Path] | None,
        typer.Option(help="JSON lines of documents to make training pairs from; may be given several times."),
    ] = None,
    synthesis_model: Annotated[
        Path | None,
        typer.Option(help="Model that filters those pairs; default: the one models/DEFAULT names."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the judgements to train on.")] = "train",
    dev: Annotated[
        list[Path] | None,
        typer.Option(help="Data folder whose split `dev` is watched; may be given several times."),
    ] = None,
    negatives: Annotated[
        list[Path] | None, typer.Option(help="File of mined hard negatives; may be given several times.")
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(help="BERT-layout safetensors folder, checkpoint or model; default: all-MiniLM-L6-v2."),
    ] = None,
    teacher: Annotated[
        Path | None, typer.Option(help="BERT-layout folder to distil from; default: all-MiniLM-L6-v2.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Overrides the configuration's bound.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the configuration's seed.")] = None,
    device: Annotated[TrainingDevice, typer.Option(help="`auto` takes a GPU where there is one.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes all cores.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
) -> None:
    """Train on the judged pairs of one or more folders and write a checkpoint; the same call resumes."""
    if threads:
        torch.set_num_threads(threads)
    console = Console(stderr=True)
    with guarded():
        options = _override(TrainConfig.load_toml(config), max_steps, seed)
        start, guide = init or minilm_folder(), teacher or minilm_folder()
        inputs = TrainInputs(
            data or (),
            split,
            out,
            start,
            guide,
            negatives or (),
            dev or (),
            synthesise or (),
            synthesis_model,
            device,
        )
        with _progress(console) as progress:
            task = progress.add_task("starting", total=None, loss=float("nan"), speed=0.0, dev="")

            def show(state: TrainingProgress) -> None:
                shown = "  ".join(f"{name} {value:.3f}" for name, value in state.dev.items())
                if shown and not console.is_terminal:
                    console.print(f"step {state.step}: loss {state.loss:.4f}, dev RR@10 {shown}")
                fields: dict[str, Any] = {"loss": state.loss, "speed": state.pairs_per_second}
                if shown:
                    fields["dev"] = shown
                progress.update(task, completed=state.step, total=state.steps, **fields)

            def stage(name: str) -> None:
                progress.update(task, description=name)
                if not console.is_terminal:
                    console.print(name)

            report = train(options, inputs, stage, show)
    if not PartialState().is_main_process:
        return
    text = json.dumps(report, indent=2)
    if json_file:
        json_file.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


app.command("mine")(mine_command)
app.command("synthesise")(synthesise_command)


def _override(config: TrainConfig, max_steps: int | None, seed: int | None) -> TrainConfig:
    changed = config.model_dump()
    if max_steps is not None:
        changed["optimiser"]["max_steps"] = max_steps
    if seed is not None:
        changed["seed"] = seed
    return TrainConfig.model_validate(changed)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:.0f} pairs/s  {task.fields[dev]}"),
        TimeRemainingColumn(),
        console=console,
    )


if __name__ == "__main__":
    app()
