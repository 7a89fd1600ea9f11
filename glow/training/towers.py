"""The recipe of two towers: judged pairs, and a teacher's vectors if the objective uses them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glow.artifact import QUERY_TOWER, default_model, file_sha256
from glow.errors import ConfigError
from glow.nn import minilm_folder
from glow.schema import FieldSchema
from glow.text import Preprocessor, Weighting, WordPieces, load_pieces
from glow.training.checkpoint import save_checkpoint
from glow.training.config import TrainConfig
from glow.training.data import (
    Collection,
    PairBatch,
    PairBatches,
    count_terms,
    one_at_a_time,
    read_collection,
    topics_of,
)
from glow.training.encode import EncodeOptions
from glow.training.fingerprint import collection_hash
from glow.training.given import Given
from glow.training.initial import initial_towers
from glow.training.lexical import lexical_part
from glow.training.negatives import match_negatives
from glow.training.objective import Targets
from glow.training.run import Group, Keep, Recipe, kind_of, linear
from glow.training.synthesis import SynthesisOptions, synthesize
from glow.training.teacher import document_key, query_key, teacher_vectors
from glow.training.tower_loss import TowerLoss
from glow.training.watch import Watch

__all__ = ["assemble", "pair_batches", "towers_recipe"]

Say = Callable[[str], None]


def towers_recipe(config: TrainConfig, given: Given, say: Say) -> Recipe[PairBatch]:
    """Reads the inputs of a towers run.

    Raises:
        GlowError: if data, configuration or initial weights are not usable.
    """
    given.refuse("a run of towers", "candidates", "dev_candidates", "corpora", "minutes")
    schema = config.field_schema
    pieces = _pieces(given.init, config.weighting)
    given = _synthesized(config, given, schema, say)
    say("reading data")
    collections = _collections(given, schema)
    say("counting terms")
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms(collections, schema, pieces))
    origins = [preprocessor.terms.hash, file_sha256(pieces.vocabulary), *map(collection_hash, collections)]
    targets: list[Targets] = []
    if config.objective.needs_teacher:
        say("encoding with the teacher")
        targets, hashes = _targets(config, collections, given, pieces)
        origins += hashes
    if config.objective.list_lexical:
        say("counting words for the teacher")
        words = given.run_folder / "words"
        for number, each in enumerate(collections):
            with one_at_a_time(words / f"{number}.lock"):
                part = lexical_part(words / str(number), each, schema, pieces, targets[number])
            targets[number] = replace(targets[number], lexical=part.scores)
    batches = pair_batches(config, collections, preprocessor, targets)
    towers = initial_towers(config, schema, given.init)
    objective = TowerLoss(config, towers, batches, targets, given.init)
    watch, watched = _watch(config, given, preprocessor, objective)
    return assemble(
        config,
        batches,
        objective,
        [*origins, *watched],
        lambda out, report: save_checkpoint(out, towers, preprocessor, report, objective.objective.map),
        watch,
        {"data": _about(collections, batches.pairs, given.split)},
    )


def assemble(
    config: TrainConfig,
    batches: PairBatches,
    objective: TowerLoss,
    origins: Sequence[str],
    keep: Keep = lambda folder, report: None,
    watch: Watch | None = None,
    about: Mapping[str, Any] | None = None,
) -> Recipe[PairBatch]:
    """The recipe from towers and data in memory; arguments as in `Recipe`."""
    return Recipe(
        config,
        batches,
        objective.towers,
        objective,
        keep,
        origins,
        [Group(r"\.gain$", config.optimizer.gain_rate, decay=False)],
        rate=linear(config.optimizer.warmup),
        measures=watch.measure if watch else None,
        about=about or {},
    )


def _pieces(init: Path, weighting: Weighting) -> WordPieces:
    """The run's vocabulary; ignores a `tokenizer.json` in a BERT directory, which has another format."""
    if (init / QUERY_TOWER).is_file() or kind_of(init) is not None:
        return load_pieces(init, weighting.unit)
    return WordPieces(init / "vocab.txt", weighting.unit)


def _synthesized(config: TrainConfig, given: Given, schema: FieldSchema, say: Say) -> Given:
    """The inputs, plus a synthetic data directory for every corpus in `synthesize`; keeps finished ones."""
    folders = []
    for number, corpus in enumerate(given.synthesize):
        say(f"making pairs from {corpus.name}")
        folder = given.run_folder / f"synthetic-{number}"
        options = SynthesisOptions(seed=config.seed)
        encode = EncodeOptions(threads=torch.get_num_threads())
        with one_at_a_time(given.run_folder / f"{folder.name}.lock"):
            synthesize(corpus, folder, schema, options, given.synthesis_model or default_model(), encode)
        folders.append(folder)
    return replace(given, data=[*given.data, *folders], synthesize=())


def _collections(given: Given, schema: FieldSchema) -> list[Collection]:
    """All data directories with their mined negatives.

    Raises:
        ConfigError: if there is nothing to train on.
        MismatchError: if a file of negatives matches none of the directories.
    """
    if not given.data:
        raise ConfigError("there is nothing to train on; give --data or --synthesize")
    collections = [read_collection(folder, given.split, schema) for folder in given.data]
    mined = match_negatives(given.negatives, collections) if given.negatives else [None] * len(collections)
    return [
        each if negatives is None else replace(each, negatives=negatives)
        for each, negatives in zip(collections, mined, strict=True)
    ]


def pair_batches(
    config: TrainConfig,
    collections: Sequence[Collection],
    preprocessor: Preprocessor,
    targets: Sequence[Targets] = (),
) -> PairBatches:
    """The batches of a run over collections; a teacher's vectors decide their topics."""
    options, topics = config.optimizer, config.batches.topics
    labels: list[NDArray[np.int64]] | None = None
    if topics:
        labels = [
            topics_of(target.queries[:], topics, config.seed)
            for target in targets
            if target.queries is not None
        ]
    return PairBatches(
        collections,
        preprocessor,
        options.batch_size,
        config.seed,
        config.objective.hard_negatives,
        config.objective.compares,
        config.batches.typo_rate,
        labels,
        options.epochs,
        options.max_steps,
    )


def _targets(
    config: TrainConfig, collections: Sequence[Collection], given: Given, pieces: WordPieces
) -> tuple[list[Targets], list[str]]:
    """The teacher's vectors of the sides that the objective uses, and their hashes."""
    sides = ("query", "document") if config.objective.list_other == "teacher" else config.sides
    targets, hashes = [], []
    for each in collections:
        queries = each.queries if "query" in sides else ()
        documents = each.documents if "document" in sides else ()
        where = given.teacher or minilm_folder()
        vectors = teacher_vectors(where, pieces, queries, documents, each.documents, given.vectors_folder)
        hashes.append(vectors.teacher)
        targets.append(
            Targets(
                vectors.aims([*map(query_key, queries)], f"queries of {each.name}") if queries else None,
                vectors.aims([*map(document_key, documents)], f"documents of {each.name}")
                if documents
                else None,
            )
        )
    return targets, hashes


def _watch(
    config: TrainConfig, given: Given, preprocessor: Preprocessor, objective: TowerLoss
) -> tuple[Watch | None, list[str]]:
    """The measurement of development sets, and their hashes if they decide the run."""
    if not (given.dev and config.watch.steps):
        return None, []
    watched = [read_collection(folder, "dev", preprocessor.schema) for folder in given.dev]
    targets: list[Targets] = []
    if config.objective.list_other == "teacher":
        targets, _ = _targets(config, watched, given, preprocessor.pieces)
    # With patience they decide the run's end and its final weights.
    deciding = watched if config.watch.patience else []
    watch = Watch(watched, preprocessor, config.watch, config.seed, objective, targets)
    return watch, [*map(collection_hash, deciding)]


def _about(
    collections: Sequence[Collection], pairs: Sequence[NDArray[np.int64]], split: str
) -> list[dict[str, object]]:
    return [
        {"name": each.name, "split": split, "documents": len(each.documents), "pairs": len(own)}
        for each, own in zip(collections, pairs, strict=True)
    ]
