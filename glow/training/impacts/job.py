"""One training job of learned impacts, from folders to checkpoint: `glow train --config` of a file with `[impacts]`."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glow.artifact import file_sha256
from glow.errors import ConfigError
from glow.nn import TermImpacts
from glow.runtime import Model
from glow.training.checkpoint import known_report
from glow.training.data import count_terms, read_collection
from glow.training.fingerprint import collection_hash, parts_hash
from glow.training.from_model import read_towers
from glow.training.impacts.checkpoint import TrainedImpacts, load_impacts, save_impacts
from glow.training.impacts.collection import ImpactsCollection, WordVectors
from glow.training.impacts.config import ImpactsConfig
from glow.training.impacts.trainer import ImpactsTrainer
from glow.training.rerank import read_candidates
from glow.training.run import Progress, check_single_process

__all__ = ["ImpactsInputs", "train_impacts"]

MAX_PRIORS = 20_000
"""Words whose share among the queries' is kept with a head."""


@dataclass(frozen=True, slots=True)
class ImpactsInputs:
    """What a run reads and where it writes.

    Attributes:
        data: data folders in our layout.
        candidates: TREC runs of a first search, one for each folder, in the same order.
        split: of the judgements.
        out: the checkpoint folder to write; state and documents' states go to `OUT.run/` beside it.
        model: the model whose towers the head is for; they stay as they are.
    """

    data: Sequence[Path]
    candidates: Sequence[Path]
    split: str
    out: Path
    model: Path


def train_impacts(
    config: ImpactsConfig,
    inputs: ImpactsInputs,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains a head over a model's frozen towers and writes a checkpoint; the same call goes on where a stopped one was.

    Returns:
        The training report, as it is stored with the checkpoint; of a run that was finished before, the one that is there.

    Raises:
        ConfigError: if there are not as many runs of candidates as data folders, or there are several processes.
        GlowError: if data, model or configuration are not usable.
    """
    start = time.monotonic()
    check_single_process("learned impacts are trained")
    if not inputs.data or len(inputs.data) != len(inputs.candidates):
        raise ConfigError(
            f"learned impacts are trained against what a first search found: found {len(inputs.data)} --data and "
            f"{len(inputs.candidates)} --candidates, expected one TREC run for each folder (glow evaluate --run)"
        )
    model, run_folder = Model.open(inputs.model), inputs.out.with_name(inputs.out.name + ".run")
    on_stage("reading data")
    collections = list(_collections(inputs, model, run_folder, config.objective.depth))
    on_stage("encoding documents")
    tower = read_towers(model).document
    for each in collections:
        each.encode(tower)
    on_stage("encoding words")
    words = WordVectors(model.encoder("query", threads=torch.get_num_threads()), model.preprocessor)
    for each in collections:
        words.add(word for query in each.words for word in query)
        words.add(each.vocabulary[0])
    torch.manual_seed(config.seed)
    head = TermImpacts(model.encoder("query").dimensions, config.impacts.dimensions)
    parts = [config.model_dump_json(), model.hash, *map(file_sha256, inputs.candidates)]
    fingerprint = parts_hash([*parts, *(collection_hash(each.found.collection) for each in collections)])
    on_stage("training")
    losses = ImpactsTrainer(config, head, collections, words, run_folder, fingerprint, on_progress).run()
    if not losses and (known := known_report(load_impacts, inputs.out, fingerprint)) is not None:
        return known
    report = {
        "config": config.model_dump(),
        "model": model.label,
        "data": [
            {
                "name": each.found.collection.name,
                "split": inputs.split,
                "documents": len(each.found.collection.documents),
                "queries": len(each.words),
            }
            for each in collections
        ],
        "final_loss": sum(losses[-50:]) / len(losses[-50:]) if losses else None,
        "fingerprint": fingerprint,
        "seconds": round(time.monotonic() - start, 1),
    }
    save_impacts(inputs.out, TrainedImpacts(head.eval(), model.hash, _priors(collections), report))
    return report


def _collections(
    inputs: ImpactsInputs, model: Model, run_folder: Path, depth: int
) -> Iterator[ImpactsCollection]:
    own = model.preprocessor
    for number, (folder, run) in enumerate(zip(inputs.data, inputs.candidates, strict=True)):
        collection = read_collection(folder, inputs.split, own.schema)
        found = read_candidates(run, collection, depth)
        terms = count_terms([collection], own.schema, own.pieces)
        yield ImpactsCollection(found, model.with_terms(terms), run_folder / f"{number}-{collection.name}")


def _priors(collections: Sequence[ImpactsCollection]) -> dict[str, float]:
    """Each word's share among the words of queries, every collection counting alike."""
    shares: dict[str, float] = {}
    for each in collections:
        counts = each.word_counts()
        total = (counts.total() or 1) * len(collections)
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    return dict(sorted(shares.items(), key=lambda share: -share[1])[:MAX_PRIORS])
