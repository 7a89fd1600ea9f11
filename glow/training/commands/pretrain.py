"""`glow pretrain`: an encoder on text without queries."""

import json
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from rich.console import Console

from glow.commands import JsonOptions, command, option, write_report
from glow.nn import minilm_folder
from glow.training.pretraining import PretrainConfig, PretrainInputs, PretrainProgress, pretrain
from glow.training.run import TrainingDevice

__all__ = ["PretrainOptions", "pretrain_command"]

SHOWN_STEPS = 25


class PretrainOptions(JsonOptions):
    """Which text to read, from which start, and where the result goes."""

    config: Path = option(..., "TOML file with the run's options.", metavar="FILE")
    corpus: tuple[Path, ...] = option(
        (), "JSON lines of documents (.jsonl), or plain text; may be given several times.", metavar="FILE"
    )
    out: Path = option(
        ..., "Checkpoint folder to write; text, state and metrics go to OUT.run.", metavar="DIR"
    )
    init: Path | None = option(
        None, "BERT-layout safetensors folder, checkpoint or model; default: all-MiniLM-L6-v2.", metavar="DIR"
    )
    steps: int | None = option(None, "Overrides the configuration's steps.", ge=1)
    minutes: float = option(
        0.0,
        "Trains for about so long, by the speed of the first steps, in place of a number of steps.",
        ge=0.0,
    )
    seed: int | None = option(None, "Overrides the configuration's seed.")
    device: TrainingDevice = option("auto", "`auto` takes a GPU where there is one.")
    threads: int = option(0, "CPU threads; 0 takes all cores.", ge=0)


@command(PretrainOptions)
def pretrain_command(options: PretrainOptions) -> None:
    """Pre-trains an encoder on text alone (Cross-Thought, and what it is compared with); the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def show(state: PretrainProgress) -> None:
        if PartialState().is_main_process and (state.step % SHOWN_STEPS == 0 or state.step == state.steps):
            looks = "" if state.entropy != state.entropy else f", attention entropy {state.entropy:.3f}"
            console.print(
                f"step {state.step:,} of {state.steps:,}: loss {state.loss:.4f}, {state.tokens_per_second:,.0f} tokens/s{looks}",
                markup=False,
            )

    inputs = PretrainInputs(
        options.corpus, options.out, options.init or minilm_folder(), options.device, options.minutes
    )
    report = pretrain(_config(options), inputs, lambda stage: console.print(stage, markup=False), show)
    if not PartialState().is_main_process:
        return
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _config(options: PretrainOptions) -> PretrainConfig:
    changed = PretrainConfig.load_toml(options.config).model_dump()
    if options.steps is not None:
        changed["optimizer"]["steps"] = options.steps
    if options.seed is not None:
        changed["seed"] = options.seed
    return PretrainConfig.model_validate(changed)
