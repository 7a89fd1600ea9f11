"""One training job from folders to checkpoint: `glow train`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glow.artifact import QUERY_TOWER, default_model, file_sha256
from glow.errors import ConfigError, MismatchError
from glow.nn import TwoTowers, bert_config, init_from_bert, init_words
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, WordPieces, load_pieces
from glow.training.checkpoint import TOWERS_FILE, known_report, load_checkpoint, save_checkpoint
from glow.training.config import Side, TrainConfig
from glow.training.data import (
    Collection,
    PairBatches,
    count_terms,
    is_msmarco,
    one_at_a_time,
    read_collection,
    read_msmarco,
    topics_of,
)
from glow.training.encode import EncodeOptions
from glow.training.fingerprint import collection_hash
from glow.training.from_imported import fill_from_imported
from glow.training.from_model import read_towers
from glow.training.lexical import lexical_part
from glow.training.loop import Trainer
from glow.training.negatives import match_negatives
from glow.training.objective import Targets
from glow.training.run import Progress, TrainingDevice
from glow.training.run_folder import read_metrics
from glow.training.synthesis import SynthesisOptions, synthesise
from glow.training.teacher import is_model, joined_text, model_vectors, teacher_hash, teacher_vectors
from glow.training.watch import Watch

__all__ = ["TrainInputs", "train"]


@dataclass(frozen=True, slots=True)
class TrainInputs:
    """What a run reads and where it writes.

    Attributes:
        data: data folders, in our layout or MS MARCO's files as released.
        split: of their judgements.
        out: the checkpoint folder to write; state, metrics and pictures go to `OUT.run/` beside it.
        init: initial weights and vocabulary: a BERT-layout folder, a checkpoint, or a model to go on from.
        teacher: BERT-layout folder of the encoder to distil, or a model or checkpoint, where the objective looks at one.
        negatives: files of mined hard negatives; each names the folder it was mined from.
        dev: data folders whose split `dev` is watched.
        synthesise: JSON lines of documents to make training pairs from, under the run folder.
        synthesis_model: model whose search filters those pairs.
        device: `auto`, `cpu` or `cuda`.
    """

    data: Sequence[Path]
    split: str
    out: Path
    init: Path
    teacher: Path
    negatives: Sequence[Path] = ()
    dev: Sequence[Path] = ()
    synthesise: Sequence[Path] = ()
    synthesis_model: Path | None = None
    device: TrainingDevice = "auto"

    @property
    def run_folder(self) -> Path:
        """Where the run keeps its state."""
        return self.out.with_name(self.out.name + ".run")


def train(
    config: TrainConfig,
    inputs: TrainInputs,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains two towers and writes a checkpoint; the same call goes on where a stopped one was.

    Args:
        config: the run.
        inputs: data, initial weights, output.
        on_stage: told what is being done.
        on_progress: told of every step.

    Returns:
        The training report, as it is stored with the checkpoint; of a run that was finished before, the one that is
        there.

    Raises:
        InputError: if data or configuration are not usable.
    """
    start = time.monotonic()
    schema = config.field_schema
    pieces = load_pieces(inputs.init, config.weighting.unit)
    inputs = _synthesised(config, inputs, schema, on_stage)
    on_stage("reading data")
    collections = _collections(config, inputs, schema)
    on_stage("counting terms")
    terms = count_terms(collections, schema, pieces)
    preprocessor = Preprocessor(pieces, schema, config.weighting, terms)
    options = config.optimizer
    targets: list[Targets] = []
    origins = [terms.hash, file_sha256(pieces.vocabulary)]
    if config.objective.needs_teacher:
        origins.append(teacher_hash(inputs.teacher, pieces))
        targets = _all_targets(config, collections, inputs, pieces, on_stage)
    batches = PairBatches(
        collections,
        preprocessor,
        options.batch_size,
        config.seed,
        config.objective.hard_negatives,
        config.objective.compares,
        config.batches.slips,
        _topics(targets, config),
    )
    watch, watched = _watch(config, inputs, preprocessor)
    towers = initial_towers(config, schema, inputs.init)
    on_stage("training")
    run, device = inputs.run_folder, inputs.device
    trainer = Trainer(config, towers, batches, run, targets, watch, device, on_progress, [*origins, *watched])
    losses = trainer.run()
    if not losses and (known := known_report(load_checkpoint, inputs.out, trainer.fingerprint)) is not None:
        return known
    report = _report(trainer, inputs, collections, batches, losses) | {
        "seconds": round(time.monotonic() - start, 1)
    }
    if trainer.accelerator.is_main_process:
        save_checkpoint(inputs.out, towers.cpu(), preprocessor, report)
    return report


def _watch(
    config: TrainConfig, inputs: TrainInputs, preprocessor: Preprocessor
) -> tuple[Watch | None, list[str]]:
    """What looks at dev retrieval, and hashes of what it looks at where that decides the run."""
    if not (inputs.dev and config.watch.steps):
        return None, []
    watched = [read_collection(folder, "dev", preprocessor.schema) for folder in inputs.dev]
    # With patience they decide when the run ends, and which towers it keeps.
    deciding = watched if config.watch.patience else []
    return Watch(watched, preprocessor, config.watch, config.seed), [*map(collection_hash, deciding)]


def _report(
    trainer: Trainer,
    inputs: TrainInputs,
    collections: Sequence[Collection],
    batches: PairBatches,
    losses: Sequence[float],
) -> dict[str, Any]:
    """What a run that has ended did, but for how long it took."""
    # A run that was stopped between its last step and its checkpoint has no step left; it kept one loss in ten.
    recent = losses[-50:] or [row["loss"] for row in read_metrics(inputs.run_folder)[-5:]]
    return {
        "config": trainer.config.model_dump(by_alias=True),
        "data": [
            {"name": c.name, "split": inputs.split, "documents": len(c.documents), "pairs": len(pairs)}
            for c, pairs in zip(collections, batches.pairs, strict=True)
        ],
        "steps": trainer.position.step,
        "best_step": trainer.position.best_step or None,
        "processes": trainer.accelerator.num_processes,
        "final_loss": sum(recent) / max(len(recent), 1),
        "parameters": sum(parameter.numel() for parameter in trainer.towers.parameters()),
        "fingerprint": trainer.fingerprint,
    }


def _synthesised(
    config: TrainConfig, inputs: TrainInputs, schema: FieldSchema, on_stage: Callable[[str], None]
) -> TrainInputs:
    """The inputs with a data folder more for every corpus to make pairs from; finished folders are kept."""
    folders = []
    for number, corpus in enumerate(inputs.synthesise):
        on_stage(f"making pairs from {corpus.name}")
        folder = inputs.run_folder / f"synthetic-{number}"
        options = SynthesisOptions(seed=config.seed)
        encode = EncodeOptions(threads=torch.get_num_threads())
        with one_at_a_time(inputs.run_folder / f"{folder.name}.lock"):
            synthesise(corpus, folder, schema, options, inputs.synthesis_model or default_model(), encode)
        folders.append(folder)
    return replace(inputs, data=[*inputs.data, *folders], synthesise=())


def _collections(config: TrainConfig, inputs: TrainInputs, schema: FieldSchema) -> list[Collection]:
    """Every data folder, with the mined negatives that were made from it.

    Raises:
        ConfigError: if there is nothing to train on.
        MismatchError: if a file of negatives belongs to none of the folders.
    """
    if not inputs.data:
        raise ConfigError("there is nothing to train on; give --data or --synthesise")
    collections = [
        read_msmarco(folder, inputs.split, schema, inputs.run_folder)
        if is_msmarco(folder)
        else read_collection(folder, inputs.split, schema)
        for folder in inputs.data
    ]
    for number, negatives in enumerate(
        match_negatives(inputs.negatives, collections) if inputs.negatives else ()
    ):
        if negatives is not None:
            collections[number] = replace(collections[number], negatives=negatives)
    return collections


def initial_towers(config: TrainConfig, schema: FieldSchema, init: Path) -> TwoTowers:
    """The towers that a run starts from; layers that are drawn at random follow the run's seed."""
    torch.manual_seed(config.seed)
    wanted = config.towers
    if (init / QUERY_TOWER).is_file():
        found = read_towers(Model.open(init))
        if not found.schema.joined or found.schema == schema:
            return _go_on(found, config, schema)
        depth, document_depth = wanted.depths
        changes = {"layers": depth, "document_layers": document_depth, **wanted.changes, **wanted.shape}
        towers = TwoTowers(found.config.model_copy(update={"pooling_gain": None, **changes}), schema)
        fill_from_imported(towers, found, wanted.init_layers, wanted.document_layers)
        return towers
    if (init / TOWERS_FILE).is_file():
        return _go_on(load_checkpoint(init).towers, config, schema)
    depth, document_depth = wanted.depths
    shape = bert_config(init, layers=depth, document_layers=document_depth, **wanted.changes, **wanted.shape)
    towers = TwoTowers(shape, schema)
    if wanted.init == "words":
        init_words(towers, init)
    elif wanted.init == "layers":
        init_from_bert(towers, init, wanted.init_layers, wanted.document_layers)
    return towers


def _go_on(found: TwoTowers, config: TrainConfig, schema: FieldSchema) -> TwoTowers:
    """Trained towers, with the run's own weight side, pooling and dropout.

    Raises:
        MismatchError: if they were trained for other fields or another depth.
    """
    depths = (found.config.layers, found.config.document.layers)
    if found.schema != schema or depths != config.towers.depths:
        raise MismatchError(
            "the initial towers have {} and {} layers (queries, documents) and schema {}, "
            "the configuration asks for {} and {} and {}".format(
                *depths, found.schema.name, *config.towers.depths, schema.name
            )
        )
    towers = TwoTowers(found.config.model_copy(update=config.towers.changes), schema)
    towers.load_state_dict(found.state_dict(), strict=False)
    return towers


def _topics(targets: Sequence[Targets], config: TrainConfig) -> list[NDArray[np.int64]] | None:
    """Each collection's topics of queries, where batches are to follow them."""
    if not config.batches.topics:
        return None
    return [
        topics_of(target.queries, config.batches.topics, config.seed)
        for target in targets
        if target.queries is not None
    ]


def _all_targets(
    config: TrainConfig,
    collections: Sequence[Collection],
    inputs: TrainInputs,
    pieces: WordPieces,
    on_stage: Callable[[str], None],
) -> list[Targets]:
    """What the teacher says of every collection: vectors, and where the objective asks for it what words add."""
    on_stage("encoding with the teacher")
    targets = [_targets(collection, inputs, pieces, config.sides) for collection in collections]
    if config.objective.list_lexical:
        on_stage("counting words for the teacher")
        targets = _with_words(targets, collections, inputs, config.field_schema, pieces)
    return targets


def _targets(
    collection: Collection, inputs: TrainInputs, pieces: WordPieces, sides: Sequence[Side]
) -> Targets:
    """The teacher's vectors of the sides that steps encode."""
    cache = inputs.out.parent / "teacher"
    if is_model(inputs.teacher):
        queries, documents = model_vectors(collection.queries, collection.documents, inputs.teacher, cache)
        return Targets(queries if "query" in sides else None, documents if "document" in sides else None)

    def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
        return teacher_vectors(texts, inputs.teacher, pieces, cache)

    return Targets(
        vectors(collection.queries) if "query" in sides else None,
        vectors([joined_text(document) for document in collection.documents])
        if "document" in sides
        else None,
    )


def _with_words(
    targets: Sequence[Targets],
    collections: Sequence[Collection],
    inputs: TrainInputs,
    schema: FieldSchema,
    pieces: WordPieces,
) -> list[Targets]:
    """The teacher's vectors, each with the lexical part of its collection's hybrid scores."""
    parts = [
        lexical_part(inputs.run_folder / "words" / str(number), collection, schema, pieces, target)
        for number, (collection, target) in enumerate(zip(collections, targets, strict=True))
    ]
    return [replace(target, lexical=part.scores) for target, part in zip(targets, parts, strict=True)]
