"""Trains variants × seeds under one budget: `python -m research.grid grid`.

Every finished run is one JSON line of the results file, and is not repeated. So a grid can be stopped, continue
elsewhere, and be distributed over processes.
"""

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError

from glow.artifact import file_sha256
from glow.errors import ConfigError, InputError, MismatchError
from glow.options import StrictModel, describe, merged
from glow.text import Preprocessor, TermStats, WordPieces
from glow.training import (
    Place,
    Progress,
    TowerLoss,
    TrainConfig,
    Watch,
    count_terms,
    initial_towers,
    read_collection,
)
from glow.training import run as train_recipe
from glow.training.fingerprint import collection_hash
from glow.training.negatives import match_negatives
from glow.training.towers import assemble, pair_batches
from research.grid.measure import DevTask, measure
from research.grid.results import Key, append, finished, same_data

__all__ = ["GridConfig", "GridRun", "planned", "run"]

INIT_FILE = "model.safetensors"
ADDED_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "towers": {"hidden": 0, "heads": 0, "pooling_gain": None, "document_layers": [], "learns": "both"},
    "objective": {"list_cosines": "teacher", "list_other": "own", "list_lexical": 0.0},
    "batches": {"topics": 0, "typo_rate": 0.0},
}
"""Default values by section."""
ORDER = (
    "name", "fields", "document_tokens", "one_field_id", "seed", "checkpoint_steps", "weighting", "towers", "objective", "optimiser",
)  # fmt: skip
OPTIMIZER_ORDER = (
    "batch_size", "chunk_size", "epochs", "max_steps", "learning_rate", "gain_rate", "warmup", "strength_warmup",
)  # fmt: skip
"""The order of options at the time of the first results; others follow."""


class GridConfig(StrictModel):
    """A grid's variants.

    Attributes:
        base: options of all variants, by the keys of `TrainConfig`: the budget, and the curve of a run.
        variants: name -> options that replace the base's.
        seeds: runs per variant.
        more_seeds: variant -> runs, if different.
        baseline: the variant to compare the others with.
        against: variant -> another one to compare it with.
        documents: dev directory's name -> most documents besides the relevant ones; 0 or no entry: all.
        queries: dev directory's name -> most queries; 0 or no entry: all.
        term_stats: variant -> further sources of idf to measure it with, in addition to `corpus`.
    """

    base: Mapping[str, Any] = {}
    variants: Mapping[str, Mapping[str, Any]] = Field(min_length=1)
    seeds: int = Field(default=3, ge=1)
    more_seeds: Mapping[str, Annotated[int, Field(ge=1)]] = {}
    baseline: str
    against: Mapping[str, str] = {}
    documents: Mapping[str, Annotated[int, Field(ge=0)]] = {}
    queries: Mapping[str, Annotated[int, Field(ge=0)]] = {}
    term_stats: Mapping[str, tuple[TermStats, ...]] = {}


@dataclass(frozen=True, slots=True)
class GridRun:
    """One run of a grid.

    Attributes:
        variant: its name.
        config: the variant under the grid's budget, with the run's seed.
        term_stats: sources of idf to measure with.
    """

    variant: str
    config: TrainConfig
    term_stats: tuple[TermStats, ...]

    @property
    def key(self) -> Key:
        """Key of the result; a renamed variant keeps its results."""
        config = self.config.model_copy(update={"name": "", "seed": 0}).model_dump(mode="json", by_alias=True)
        config = _in_order(config, ORDER)
        config["optimiser"] = _in_order(config["optimiser"], OPTIMIZER_ORDER)
        # Newer options count only if they are used, so that older results keep their keys.
        for section, added in ADDED_OPTIONS.items():
            for name, value in added.items():
                if config[section][name] == value:
                    del config[section][name]
            if not config[section]:
                del config[section]
        text = json.dumps(config, separators=(",", ":"), ensure_ascii=False) + str(self.term_stats)
        return self.config.seed, hashlib.sha256(text.encode()).hexdigest()[:12]


def planned(grid: Path) -> list[GridRun]:
    """Every run of a grid file, first seeds first, so that the results of a stopped grid are comparable.

    Raises:
        ConfigError: if the grid or a variant is not valid.
    """
    config = GridConfig.load_toml(grid)
    unknown = (
        {config.baseline, *config.against, *config.against.values(), *config.more_seeds, *config.term_stats}
    ) - config.variants.keys()
    if unknown:
        raise ConfigError(f"{grid} names {', '.join(sorted(unknown))}, which are not its variants")
    variants = {name: _variant(config, name) for name in config.variants}
    counts = {name: config.more_seeds.get(name, config.seeds) for name in variants}
    return [
        GridRun(name, variant.model_copy(update={"seed": seed}), ("corpus", *config.term_stats.get(name, ())))
        for seed in range(max(counts.values()))
        for name, variant in variants.items()
        if seed < counts[name]
    ]


def _variant(grid: GridConfig, name: str) -> TrainConfig:
    """The base, overridden by the variant's tables.

    Raises:
        ConfigError: if the two conflict, or the variant needs an input that a grid lacks.
    """
    try:
        variant = TrainConfig.model_validate(merged(grid.base, grid.variants[name]) | {"name": name})
    except ValidationError as error:
        raise ConfigError(f"variant {name} is not valid: {describe(error)}") from error
    if variant.objective.needs_teacher:
        raise ConfigError(f"variant {name} requires a teacher, which a grid does not support")
    return variant


def _in_order(options: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    return {name: options[name] for name in first} | dict(options)


def run(
    grid: Path,
    data: Path,
    dev: Sequence[Path],
    init: Path,
    results: Path,
    shard: tuple[int, int] = (0, 1),
    on_run: Callable[[GridRun], None] = lambda run: None,
    negatives: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Does the missing runs, and yields each result after it was appended to the file.

    Args:
        grid: the grid's TOML file.
        data: data directory of the training pairs (split `train`).
        dev: data directories whose split `dev` is measured; the first is also measured during training.
        init: BERT directory of the initial weights.
        results: JSON Lines file to append to.
        shard: (i, n): this process does every n-th planned run from the i-th.
        on_run: called before each run.
        negatives: negatives of the training pairs (`glow mine`), for variants with `hard_negatives`.

    Raises:
        ConfigError: as `planned`; or if hard negatives are missing, or dev directories are unknown or share a name.
        InputError: if a file of the data cannot be read.
        MismatchError: if existing results have other data or initial weights.
    """
    options, runs = GridConfig.load_toml(grid), planned(grid)
    hungry = sorted({item.variant for item in runs if item.config.objective.hard_negatives})
    if hungry and negatives is None:
        raise ConfigError(
            f"variant {hungry[0]} requires hard negatives, found none; give a file of `glow mine` (--negatives)"
        )
    source = _source(options, data, dev, init)
    if negatives is not None:
        source["files"]["negatives"] = file_sha256(negatives)[:12]
    done = finished(results)
    for key in (item.key for item in runs):
        if key in done and not same_data(done[key]["data"], source):
            raise MismatchError(
                f"{results.name} holds runs of this grid on {done[key]['data']}, this call is on {source}; "
                "choose another --out"
            )
    for item in runs[shard[0] :: shard[1]]:
        if item.key not in finished(results):
            on_run(item)
            row = _result(item, options, data, dev, init, negatives) | {"data": source}
            append(results, row)
            yield row


def _source(options: GridConfig, data: Path, dev: Sequence[Path], init: Path) -> dict[str, Any]:
    """The common inputs of all runs of a results file: data, limits of the dev directories, initial weights."""
    names = [folder.resolve().name for folder in dev]
    if len(set(names)) < len(names):
        raise ConfigError(f"two --dev directories share a name ({', '.join(names)}), which must differ")
    for section, given in (("documents", options.documents), ("queries", options.queries)):
        if unknown := given.keys() - set(names):
            raise ConfigError(
                f"[{section}] of the grid names {', '.join(sorted(unknown))}, which is not a --dev directory"
            )
    try:
        digest = file_sha256(init / INIT_FILE)[:12]
    except OSError as error:
        raise ConfigError(f"cannot read {init / INIT_FILE}: {error.strerror}") from error
    bounds = {name: options.documents.get(name, 0) for name in names}
    files = {"train": _files_digest(data, "train")} | {
        f"dev {name}": _files_digest(folder, "dev") for name, folder in zip(names, dev, strict=True)
    }
    source = {"train": data.resolve().name, "dev": bounds, "init": digest, "files": files}
    return {**source, "queries": dict(options.queries)} if options.queries else source


def _files_digest(folder: Path, split: str) -> str:
    """Digest of the files that `read_collection` reads.

    Raises:
        InputError: if one cannot be read.
    """
    digest = hashlib.sha256()
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"):
        try:
            digest.update(file_sha256(path).encode())
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()[:12]


def _result(
    item: GridRun, options: GridConfig, data: Path, dev: Sequence[Path], init: Path, negatives: Path | None
) -> dict[str, Any]:
    """Trains and measures one run."""
    start, config = time.monotonic(), item.config
    schema = config.field_schema
    pieces = WordPieces(init / "vocab.txt", config.weighting.unit)
    collection = read_collection(data, "train", schema)
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms([collection], schema, pieces))
    hard = config.objective.hard_negatives
    if hard and negatives is not None:
        collection = replace(collection, negatives=match_negatives([negatives], [collection])[0])
    batches = pair_batches(config, [collection], preprocessor)
    # The measurement must not depend on the run's seed.
    limits = [
        [given.get(folder.resolve().name, 0) for given in (options.documents, options.queries)]
        for folder in dev
    ]
    tasks = [DevTask.read(folder, schema, *limit) for folder, limit in zip(dev, limits, strict=True)]
    towers = initial_towers(config, schema, init)
    loss = TowerLoss(config, towers, batches)
    is_watched = bool(config.watch.steps)
    watch = Watch([tasks[0].collection], preprocessor, config.watch, 0, loss) if is_watched else None
    recipe = assemble(config, batches, loss, [collection_hash(collection)], watch=watch)
    curve: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        trained = time.monotonic()
        report = train_recipe(recipe, Place(Path(folder)), _keep(curve))
        seconds = time.monotonic() - trained
    seed, digest = item.key
    precision, device = config.optimizer.precision, "cuda" if torch.cuda.is_available() else "cpu"
    measured = {
        stats: {task.name: measure(towers, preprocessor, task, stats, precision, device) for task in tasks}
        for stats in item.term_stats
    }
    return {
        "variant": item.variant,
        "seed": seed,
        "config": digest,
        "measures": measured["corpus"],
        "term_stats": {stats: found for stats, found in measured.items() if stats != "corpus"},
        "curve": curve,
        "steps": report["steps"],
        "pairs": report["steps"] * config.optimizer.batch_size,
        "final_loss": round(report["final_loss"], 5),
        "train_seconds": round(seconds, 1),
        "seconds": round(time.monotonic() - start, 1),
        "machine": _machine(device),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _keep(curve: list[tuple[int, float]]) -> Callable[[Progress], None]:
    def note(progress: Progress) -> None:
        curve.extend((progress.step, round(value, 5)) for value in progress.dev.values())

    return note


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()}, {torch.get_num_threads()} of {os.cpu_count()} cores"
