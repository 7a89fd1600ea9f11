"""One training job from folders to checkpoint: `python -m glow.training train`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glow.artifact.model import QUERY_TOWER
from glow.errors import MismatchError
from glow.nn.bert import bert_config, init_from_bert
from glow.nn.towers import TwoTowers
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, WordPieces
from glow.training.checkpoint import TOWERS_FILE, load_checkpoint, save_checkpoint
from glow.training.config import TrainConfig
from glow.training.data import Collection, PairBatches, count_terms, read_collection
from glow.training.from_model import read_towers
from glow.training.loop import Progress, Targets, Trainer
from glow.training.teacher import joined_text, teacher_vectors

__all__ = ["train"]


def train(
    config: TrainConfig,
    data: Sequence[Path],
    split: str,
    out: Path,
    init: Path,
    teacher: Path,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains two towers and writes a checkpoint.

    State and metrics lie in `OUT.run/` beside the checkpoint; the same call goes on where a stopped one was.

    Args:
        config: the run.
        data: BEIR-style folders.
        split: of their judgements.
        out: the checkpoint folder to write.
        init: initial weights and vocabulary: a BERT-layout folder, a checkpoint, or a model to go on from.
        teacher: BERT-layout folder of the encoder to distil, where the objective does.
        on_stage: told what is being done.
        on_progress: told of every step.

    Returns:
        The training report, as it is stored with the checkpoint.

    Raises:
        InputError: data or configuration are not usable.
    """
    start = time.monotonic()
    schema = FieldSchema.preset(config.fields)
    pieces = WordPieces(init / "vocab.txt")
    on_stage("reading data")
    collections = [read_collection(folder, split, schema) for folder in data]
    on_stage("counting terms")
    terms = count_terms(collections, schema, pieces)
    preprocessor = Preprocessor(pieces, schema, config.weighting, terms)
    on_stage("preprocessing")
    batches = PairBatches(collections, preprocessor, config.optimiser.batch_size, config.seed)
    run_folder = out.with_name(out.name + ".run")
    targets: list[Targets] = []
    if config.objective.distill_weight:
        on_stage("encoding with the teacher")
        targets = [
            _targets(collection, teacher, pieces, run_folder.parent / "teacher") for collection in collections
        ]
    towers = _initial_towers(config, schema, init)
    on_stage("training")
    trainer = Trainer(config, towers, batches, run_folder, targets, on_progress)
    losses = trainer.run()
    report = {
        "config": config.model_dump(),
        "data": [
            {"name": c.name, "split": split, "documents": len(c.documents), "pairs": len(c.pairs)}
            for c in collections
        ],
        "steps": trainer.steps,
        "final_loss": sum(losses[-50:]) / max(len(losses[-50:]), 1),
        "seconds": round(time.monotonic() - start, 1),
        "parameters": sum(parameter.numel() for parameter in towers.parameters()),
    }
    save_checkpoint(out, towers, preprocessor, report)
    return report


def _initial_towers(config: TrainConfig, schema: FieldSchema, init: Path) -> TwoTowers:
    wanted = config.towers
    if (init / QUERY_TOWER).is_file():
        return _go_on(read_towers(Model.open(init)), config, schema)
    if (init / TOWERS_FILE).is_file():
        return _go_on(load_checkpoint(init).towers, config, schema)
    shape = bert_config(
        init,
        layers=len(wanted.init_layers),
        weight_side=wanted.weight_side,
        pooling=wanted.pooling,
        dropout=wanted.dropout,
    )
    towers = TwoTowers(shape, schema)
    init_from_bert(towers, init, wanted.init_layers)
    return towers


def _go_on(found: TwoTowers, config: TrainConfig, schema: FieldSchema) -> TwoTowers:
    """Trained towers, with the run's own weight side, pooling and dropout.

    Raises:
        MismatchError: they were trained for other fields or another depth.
    """
    depth = len(config.towers.init_layers)
    if found.schema != schema or found.config.layers != depth:
        raise MismatchError(
            f"the initial towers have {found.config.layers} layers and schema {found.schema.name}, "
            f"the configuration asks for {depth} and {schema.name}"
        )
    changed = config.towers.model_dump(include={"weight_side", "pooling", "dropout"})
    towers = TwoTowers(found.config.model_copy(update=changed), schema)
    towers.load_state_dict(found.state_dict(), strict=False)
    return towers


def _targets(collection: Collection, teacher: Path, pieces: WordPieces, cache: Path) -> Targets:
    documents = [joined_text(document) for document in collection.documents]
    return Targets(
        teacher_vectors(collection.queries, teacher, pieces, cache),
        teacher_vectors(documents, teacher, pieces, cache),
    )
