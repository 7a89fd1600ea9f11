"""Command line of training: `python -m glow.training train --config configs/NAME.toml --data DIR --out CKPT`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.errors import GlowError
from glow.nn.bert import minilm_folder
from glow.schema import FieldSchema
from glow.training.config import TrainConfig
from glow.training.loop import Progress as TrainingProgress
from glow.training.synthesise import synthesise
from glow.training.train import train

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train GLOW's two towers.")


@app.callback()
def _main() -> None:
    """Train GLOW's two towers."""


@app.command("train")
def train_command(
    config: Annotated[Path, typer.Option(help="TOML file with the run's options.")],
    data: Annotated[list[Path], typer.Option(help="BEIR-style folder; may be given several times.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write; state and metrics go to OUT.run.")],
    split: Annotated[str, typer.Option(help="Split of the judgements to train on.")] = "train",
    init: Annotated[
        Path | None,
        typer.Option(help="BERT-layout safetensors folder, checkpoint or model; default: all-MiniLM-L6-v2."),
    ] = None,
    teacher: Annotated[
        Path | None, typer.Option(help="BERT-layout folder to distil from; default: all-MiniLM-L6-v2.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Overrides the configuration's bound.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the configuration's seed.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes all cores.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
) -> None:
    """Train on the judged pairs of one or more folders and write a checkpoint; the same call resumes."""
    if threads:
        torch.set_num_threads(threads)
    console = Console(stderr=True)
    try:
        options = _override(TrainConfig.read(config), max_steps, seed)
        with _progress(console) as progress:
            task = progress.add_task("starting", total=None, loss=float("nan"), speed=0.0)

            def show(state: TrainingProgress) -> None:
                progress.update(
                    task,
                    completed=state.step,
                    total=state.steps,
                    loss=state.loss,
                    speed=state.pairs_per_second,
                )

            def stage(name: str) -> None:
                progress.update(task, description=name)
                if not console.is_terminal:
                    console.print(name)

            start, guide = init or minilm_folder(), teacher or minilm_folder()
            report = train(options, data, split, out, start, guide, stage, show)
    except GlowError as error:
        console.print(f"[red]error[/red] ({error.code}): {error}")
        raise typer.Exit(2) from error
    text = json.dumps(report, indent=2)
    if json_file:
        json_file.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


@app.command("synthesise")
def synthesise_command(
    corpus: Annotated[Path, typer.Option(help="JSON lines of documents.")],
    out: Annotated[Path, typer.Option(help="Data folder to write.")],
    fields: Annotated[str, typer.Option(help="Schema preset that names the text fields.")] = "glow-default",
    max_queries: Annotated[int, typer.Option(help="Most queries a document.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the choice of sentences.")] = 0,
) -> None:
    """Make training pairs from documents alone: clicked queries, anchors and sentences as queries."""
    try:
        pairs = synthesise(corpus, out, FieldSchema.preset(fields), seed, max_queries)
    except GlowError as error:
        Console(stderr=True).print(f"[red]error[/red] ({error.code}): {error}")
        raise typer.Exit(2) from error
    sys.stdout.write(f"{pairs} pairs in {out}\n")


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
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:.0f} pairs/s"),
        TimeRemainingColumn(),
        console=console,
    )


if __name__ == "__main__":
    app()
