"""`glow train`, `glow pretrain`, `glow mine` and `glow synthesize`."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.artifact import default_model, find_model
from glow.commands import JsonOptions, command, option, shown_progress, write_report
from glow.errors import ConfigError
from glow.negatives import write_negatives
from glow.nn import minilm_folder
from glow.options import StrictModel, describe, merged, read_toml
from glow.runtime import Device
from glow.schema import FieldSchema
from glow.training.data import Given, read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.impacts import ImpactsConfig, impacts_recipe
from glow.training.negatives import MiningOptions, MiningRetriever, mine
from glow.training.pretraining import PretrainConfig, pretraining_recipe
from glow.training.rerank import RerankConfig, reranker_recipe
from glow.training.run import (
    Place,
    Processes,
    Recipe,
    RunConfig,
    Tell,
    TrainingDevice,
    describe_run,
    run,
)
from glow.training.run import Progress as TrainingProgress
from glow.training.synthesis import KINDS, SynthesisOptions, synthesize
from glow.training.towers import Say, TrainConfig, towers_recipe

CONFIGS: Mapping[str, type[RunConfig]] = {
    "towers": TrainConfig,
    "reranker": RerankConfig,
    "impacts": ImpactsConfig,
    "pretraining": PretrainConfig,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a file."""

    config: RunConfig  # configuration of the run; its name is the stage's
    before: str = ""  # name of the stage that it starts from, "" for the first
    is_last: bool = True  # whether its checkpoint is the final one

    def given(self, given: Given, *, has_init: bool) -> Given:
        """The stage's inputs: its own checkpoint directory, and the previous stage's weights unless others are given."""
        init = given.init if has_init or not self.before else stage_folder(given.out, self.before)
        return replace(
            given,
            cache=given.vectors_folder,
            init=init,
            out=given.out if self.is_last else stage_folder(given.out, self.config.name),
        )


def stage_folder(out: Path, name: str) -> Path:
    """The checkpoint directory of a stage before the last."""
    return out.with_name(f"{out.name}.stages") / name


def read_stages(path: Path, only: str = "", seed: int | None = None, steps: int | None = None) -> list[Stage]:
    """Reads a file of `configs/`.

    `[[stage]]` tables have a name, and the options that differ from those above them.
    """
    tables = read_toml(path)
    kind = tables.pop("kind", "towers")
    if not isinstance(kind, str) or kind not in CONFIGS:
        raise ConfigError(f"{path} is not valid: kind: expected one of {', '.join(CONFIGS)}, found {kind!r}")
    changes = tables.pop("stage", None)
    if changes is not None and not (
        isinstance(changes, list) and all(isinstance(each, dict) for each in changes)
    ):
        raise ConfigError(f"{path} is not valid: stage: expected tables [[stage]], found {changes!r:.80}")
    fixed: dict[str, Any] = {} if seed is None else {"seed": seed}
    if steps is not None:
        fixed["optimizer"] = {"steps" if kind in ("impacts", "pretraining") else "max_steps": steps}
    parts = [merged(merged(tables, each), fixed) for each in changes or [{}]]
    configs, faults = [], []
    for number, part in enumerate(parts):
        try:
            configs.append(CONFIGS[kind].model_validate(part))
        except ValidationError as error:
            where = f"stage {part.get('name', number + 1)}: " if len(parts) > 1 else ""
            faults.append(f"{where}{describe(error)}")
    if faults:
        raise ConfigError(f"{path} is not valid: {'; '.join(faults)}")
    names = [config.name for config in configs]
    # Names of stages become directories.
    are_names = all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) for name in names)
    if changes and (len(set(names)) < len(names) or not are_names):
        raise ConfigError(
            f"{path} is not valid: found stages named {', '.join(map(repr, names))}; expected distinct names of letters, digits, "
            "'_', '-', and '.' inside"
        )
    stages = [
        Stage(config, names[number - 1] if number else "", number + 1 == len(configs))
        for number, config in enumerate(configs)
    ]
    if not only:
        return stages
    if only not in names:
        raise ConfigError(f"{path} has no stage {only!r}, found {', '.join(names)}")
    return [Stage(configs[names.index(only)])]


RECIPES: Mapping[type[RunConfig], Callable[[Any, Given, Say], Recipe[Any]]] = {
    TrainConfig: towers_recipe,
    RerankConfig: reranker_recipe,
    ImpactsConfig: impacts_recipe,
    PretrainConfig: pretraining_recipe,
}


def train(
    config: RunConfig,
    given: Given,
    say: Say = lambda stage: None,
    tell: Tell = lambda progress: None,
    *,
    dry: bool = False,
) -> dict[str, Any]:
    """Trains a model and writes a checkpoint; the same call resumes a stopped one."""
    given.check_folders()
    recipe = RECIPES[type(config)](config, given, say)
    if dry:
        return describe_run(recipe, Processes(given.device).count)
    say("training")
    return run(recipe, Place(given.run_folder, given.out, given.device), tell)


SHOWN_STEPS = 25
"""Steps between two progress lines without a terminal."""


class RunOptions(JsonOptions):
    """The options of every run."""

    config: Path = option(..., "TOML file with the run's configuration.", metavar="FILE")
    out: Path = option(
        ...,
        "Checkpoint directory to write; state and metrics go to OUT.run, earlier stages to OUT.stages.",
        metavar="DIR",
    )
    init: Path | None = option(
        None,
        "BERT directory (safetensors), checkpoint or model to start from; default: all-MiniLM-L6-v2. For learned impacts: the model to extend.",
        metavar="DIR",
    )
    stage: str = option("", "Run only this stage of the configuration, from --init to --out.")
    seed: int | None = option(None, "Random seed; default: as configured.")
    device: TrainingDevice = option("auto", "`auto`: a GPU if there is one.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)
    dry: bool = option(False, "Read all inputs, prepare the run and print its plan, without training.")


class TrainOptions(RunOptions):
    """Training data, initial weights and output."""

    data: tuple[Path, ...] = option((), "Data directory; repeatable.", metavar="DIR")
    split: str = option("train", "Training split of the relevance judgments.")
    dev: tuple[Path, ...] = option(
        (), "Data directory whose split `dev` is evaluated; repeatable.", metavar="DIR"
    )
    negatives: tuple[Path, ...] = option((), "File of mined hard negatives; repeatable.", metavar="FILE")
    candidates: tuple[Path, ...] = option(
        (),
        "TREC run of first-stage retrieval over --data, for a re-ranker ([cross]) or learned impacts ([impacts]); one per directory, in order.",
        metavar="FILE",
    )
    dev_candidates: tuple[Path, ...] = option((), "The same for --dev.", metavar="FILE")
    teacher: Path | None = option(
        None,
        "Teacher: a BERT directory, model or checkpoint; default: all-MiniLM-L6-v2.",
        metavar="DIR",
    )
    max_steps: int | None = option(None, "Most steps; default: as configured.")


class PretrainOptions(RunOptions):
    """Text, initial weights and output."""

    corpus: tuple[Path, ...] = option((), "Documents (.jsonl) or plain text; repeatable.", metavar="FILE")
    dev: tuple[Path, ...] = option((), "Text for the development loss; repeatable.", metavar="FILE")
    steps: int | None = option(None, "Number of steps; default: as configured.", ge=1)


@command(TrainOptions)
def train_command(options: TrainOptions) -> None:
    """Trains two encoders, a re-ranker or learned impacts on judged pairs; the same call resumes."""
    names = ("data", "split", "candidates", "teacher", "negatives", "dev", "dev_candidates")
    _run(options, options.max_steps, {name: getattr(options, name) for name in names})


@command(PretrainOptions)
def pretrain_command(options: PretrainOptions) -> None:
    """Pre-trains an encoder on text alone (Cross-Thought or another objective); the same call resumes."""
    _run(options, options.steps, {"corpora": options.corpus, "dev": options.dev})


def _run(options: RunOptions, steps: int | None, more: dict[str, Any]) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    stages = read_stages(options.config, options.stage, options.seed, steps)
    config, is_text = stages[0].config, isinstance(options, PretrainOptions)
    if isinstance(config, PretrainConfig) != is_text:
        name = "glow train" if is_text else "glow pretrain"
        raise ConfigError(f"{options.config} is a configuration of {name}; run that command with it")
    init = options.init or (default_model() if isinstance(config, ImpactsConfig) else minilm_folder())
    given = Given(out=options.out, init=init, device=options.device, **more)
    _refuse_unused(options.config, stages, given)
    console = Console(stderr=True)
    reports = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]}  {task.fields[dev]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        say, tell = _views(bar, console)
        for number, stage in enumerate(stages):
            if options.dry and number:  # the checkpoint that it starts from is not there
                reports.append({"config": stage.config.model_dump(mode="json")})
                continue
            own = stage.given(given, has_init=options.init is not None and number == 0)
            reports.append(train(stage.config, own, say, tell, dry=options.dry))
    if not PartialState().is_main_process:
        return
    report = reports[0] if len(reports) == 1 else {"stages": reports}
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _refuse_unused(file: Path, stages: Sequence[Stage], given: Given) -> None:
    """Raises ConfigError for given inputs that no stage uses; other kinds check their own teacher."""
    configs = [stage.config for stage in stages]
    if given.dev and not any(config.watch.steps for config in configs):
        raise ConfigError(f"--dev has no use in {file}: set [watch] steps above 0 or leave --dev out")
    towers = [config for config in configs if isinstance(config, TrainConfig)]
    if given.teacher and towers and not any(config.objective.needs_teacher for config in towers):
        raise ConfigError(
            f"--teacher has no use in {file}: set distill_weight or list_weight above 0 or leave --teacher out"
        )


def _views(
    bar: Progress, console: Console
) -> tuple[Callable[[str], None], Callable[[TrainingProgress], None]]:
    """Shows a run's current task and progress; prints lines without a terminal."""
    task = bar.add_task("starting", total=None, loss=float("nan"), speed="", dev="")

    def say(name: str) -> None:
        bar.update(task, description=name)
        if not console.is_terminal:
            console.print(name, markup=False)

    def tell(state: TrainingProgress) -> None:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in (state.dev or state.figures).items())
        is_due = state.dev or state.step % SHOWN_STEPS == 0 or state.step == state.steps
        if is_due and not console.is_terminal:
            dev = f", dev {shown}" if state.dev else ""
            line = f"step {state.step} of {state.steps}: loss {state.loss:.4f}{dev}"
            console.print(line, markup=False, soft_wrap=True)
        fields: dict[str, Any] = {"loss": state.loss, "speed": f"{state.speed:,.0f} {state.unit}/s"}
        if shown:
            fields["dev"] = shown
        bar.update(task, completed=state.step, total=state.steps, **fields)

    return say, tell


_DEFAULTS = SynthesisOptions()


class EncodingOptions(StrictModel):
    """The encoder and where it runs."""

    model: Path | None = option(
        None, "Model, by name or directory, or checkpoint directory; default: glow-mini.", metavar="DIR"
    )
    fields: str = option("glow-default", "Schema preset with the text fields.")
    device: Device = option("cpu", "Device that encodes.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)

    def encoding(self) -> EncodeOptions:
        """Converts the options of encoding; also sets torch's number of threads."""
        threads = self.threads or os.cpu_count() or 1
        torch.set_num_threads(threads)
        return EncodeOptions(self.device, threads)


class MineOptions(EncodingOptions):
    """Options of mining hard negatives."""

    data: Path = option(..., "Data directory in BEIR format.", metavar="DIR")
    out: Path = option(..., "JSON Lines file to write.", metavar="FILE")
    split: str = option("train", "Split of the relevance judgments.")
    retriever: MiningRetriever = option("dense", "Retriever.")
    first: int = option(10, "First rank to mine, from 1.", flag="--min-rank", ge=1)
    last: int = option(100, "Last rank to mine.", flag="--max-rank", ge=1)
    count: int = option(8, "Most negatives per query.", ge=1)
    margin: float = option(
        0.95, "Highest fraction of the best positive's score; 0: no limit.", ge=0.0, le=1.0
    )
    seed: int = option(0, "Random seed.", ge=0)


class SynthesizeOptions(EncodingOptions):
    """Which pairs to make from documents alone."""

    corpus: Path = option(..., "Documents (JSON Lines).", metavar="FILE")
    out: Path = option(..., "Data directory to write.", metavar="DIR")
    round_trip: int = option(
        _DEFAULTS.round_trip, "Lowest rank at which a query must find its document; 0 keeps all.", ge=0
    )
    max_queries: int = option(_DEFAULTS.max_queries, "Most queries per document.", ge=1)
    drop: float = option(
        _DEFAULTS.drop, "Fraction of document copies that lack the query's source.", ge=0.0, le=1.0
    )
    kinds: str = option(",".join(KINDS), "Kinds of queries, separated by commas.")
    seed: int = option(0, "Random seed.", ge=0)


@command(MineOptions)
def mine_command(options: MineOptions) -> None:
    """Finds hard negatives: documents that rank high for a judged query and are not judged relevant.

    BM25 alone (`--retriever lexical`) opens a model only if `--model` names one, for the margin.
    """
    with shown_progress(sys.stderr) as show:
        names = ("retriever", "first", "last", "count", "margin", "seed")
        mining = MiningOptions(**{name: getattr(options, name) for name in names})
        schema = FieldSchema.preset(options.fields)
        collection = read_collection(options.data, options.split, schema)
        dense = None
        if options.model is not None or options.retriever != "lexical":
            source = open_source(find_model(options.model), options.encoding())
            dense = EncodedCorpus(source, collection.documents, show("encoding documents"))
        header, lines, figures = mine(collection, options.split, schema, mining, dense, show("mining"))
        write_negatives(options.out, header, lines)
    sys.stdout.write(json.dumps({"file": str(options.out), **figures}, indent=2) + "\n")


@command(SynthesizeOptions)
def synthesize_command(options: SynthesizeOptions) -> None:
    """Makes training pairs from documents alone, filtered by searching for them."""
    with shown_progress(sys.stderr) as show:
        kinds = tuple(kind.strip() for kind in options.kinds.split(",") if kind.strip())
        making = SynthesisOptions(options.max_queries, options.drop, options.round_trip, options.seed, kinds)
        searcher = find_model(options.model) if options.round_trip else None
        encode = options.encoding()
        schema = FieldSchema.preset(options.fields)
        report = synthesize(
            options.corpus, options.out, schema, making, searcher, encode, show("encoding documents")
        )
    sys.stdout.write(json.dumps({"folder": str(options.out), **report}, indent=2) + "\n")
