"""One training job of a re-ranker, from folders to checkpoint: `glow train --config` of a file with `[cross]`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glow.artifact import file_sha256
from glow.errors import ConfigError, MismatchError
from glow.nn import CrossConfig, CrossEncoder, bert_config, init_cross_encoder
from glow.text import Preprocessor, WordPieces
from glow.training.checkpoint import known_report
from glow.training.data import Collection, count_terms, read_collection
from glow.training.fingerprint import collection_hash, parameters_hash, parts_hash
from glow.training.rerank.candidates import CandidateBatches, Texts, read_candidates
from glow.training.rerank.checkpoint import CROSS_FILE, load_reranker, save_reranker
from glow.training.rerank.config import RerankConfig
from glow.training.rerank.trainer import RerankTrainer
from glow.training.run import Progress, check_single_process

__all__ = ["RerankInputs", "initial_cross_encoder", "train_reranker"]


@dataclass(frozen=True, slots=True)
class RerankInputs:
    """What a run reads and where it writes.

    Attributes:
        data: data folders in our layout.
        candidates: TREC runs of a first search, one for each folder, in the same order.
        split: of the judgements.
        out: the checkpoint folder to write; the state goes to `OUT.run/` beside it.
        init: BERT-layout folder of the initial weights and the vocabulary, or a re-ranker's checkpoint to go on from.
        device: `cpu` or `cuda`.
        teacher: a re-ranker's checkpoint to distil from; needed where `objective.distill` is above 0.
    """

    data: Sequence[Path]
    candidates: Sequence[Path]
    split: str
    out: Path
    init: Path
    device: str = "cpu"
    teacher: Path | None = None


def train_reranker(
    config: RerankConfig,
    inputs: RerankInputs,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains a cross-encoder and writes a checkpoint; the same call goes on where a stopped one was.

    Args:
        config: the run.
        inputs: data, initial weights, output.
        on_stage: told what is being done.
        on_progress: told of every step.

    Returns:
        The training report, as it is stored with the checkpoint; of a run that was finished before, the one that is there.

    Raises:
        ConfigError: if there are not as many runs of candidates as data folders, a teacher without `distill` or the reverse,
            several processes, or fp16 on a CPU.
        GlowError: if data or configuration are not usable.
    """
    start = time.monotonic()
    _check(inputs)
    teacher = _teacher(config, inputs.teacher)
    schema = config.field_schema
    pieces = WordPieces(inputs.init / "vocab.txt", config.weighting.unit)
    on_stage("reading data")
    collections = [read_collection(folder, inputs.split, schema) for folder in inputs.data]
    found = [
        read_candidates(run, collection, config.objective.depth)
        for run, collection in zip(inputs.candidates, collections, strict=True)
    ]
    on_stage("counting terms")
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms(collections, schema, pieces))
    batches = CandidateBatches(found, config.optimizer.batch_size, config.objective.negatives, config.seed)
    model = initial_cross_encoder(config, inputs.init)
    origins = [preprocessor.terms.hash, parameters_hash(model), *map(collection_hash, collections)]
    fingerprint = _fingerprint(config, origins, inputs.candidates, teacher)
    on_stage("training")
    texts = [Texts(collection, preprocessor) for collection in collections]
    run, pad_id, device = inputs.out.with_name(inputs.out.name + ".run"), pieces.pad_id, inputs.device
    trainer = RerankTrainer(
        config, model, batches, texts, pad_id, run, fingerprint, device, on_progress, teacher
    )
    losses = trainer.run()
    if not losses and (known := known_report(load_reranker, inputs.out, fingerprint)) is not None:
        return known
    report = {
        "config": config.model_dump(),
        "data": _data(collections, inputs.split),
        "steps": trainer.position.step,
        "final_loss": sum(losses[-50:]) / len(losses[-50:]) if losses else None,
        "fingerprint": fingerprint,
        "seconds": round(time.monotonic() - start, 1),
    }
    save_reranker(inputs.out, model.cpu(), preprocessor, report)
    return report


def _check(inputs: RerankInputs) -> None:
    check_single_process("a re-ranker is trained")
    if not inputs.data or len(inputs.data) != len(inputs.candidates):
        raise ConfigError(
            f"a re-ranker learns from what a first search found: found {len(inputs.data)} --data and "
            f"{len(inputs.candidates)} --candidates, expected one TREC run for each folder (glow evaluate --run)"
        )


def _fingerprint(
    config: RerankConfig, origins: Sequence[str], candidates: Sequence[Path], teacher: CrossEncoder | None
) -> str:
    """Hash of all that decides a run; `origins` are the hashes of what it starts from and of its data."""
    parts = [config.model_dump_json(), *origins, *map(file_sha256, candidates)]
    if teacher is not None:
        parts.append(parameters_hash(teacher))
    return parts_hash(parts)


def _data(collections: Sequence[Collection], split: str) -> list[dict[str, Any]]:
    """What the report says of each collection that was trained on."""
    return [
        {"name": each.name, "split": split, "documents": len(each.documents), "queries": len(each.queries)}
        for each in collections
    ]


def _teacher(config: RerankConfig, folder: Path | None) -> CrossEncoder | None:
    if (folder is None) != (config.objective.distill == 0.0):
        raise ConfigError("--teacher and [objective] distill above 0 go together; give both or neither")
    if folder is None:
        return None
    teacher = load_reranker(folder).model
    lengths = (config.query_tokens, config.document_tokens)
    if (teacher.config.query_tokens, teacher.config.document_tokens) != lengths:
        raise MismatchError(
            f"the teacher reads queries and documents of {teacher.config.query_tokens} and {teacher.config.document_tokens} tokens, "
            f"the configuration {lengths[0]} and {lengths[1]}; give the same"
        )
    return teacher


def initial_cross_encoder(config: RerankConfig, init: Path) -> CrossEncoder:
    """The model that a run starts from; what the initial weights do not have is drawn by the run's seed.

    A checkpoint may have another split, and lack the compressor or late interaction.

    Raises:
        MismatchError: if a checkpoint has other layers, fields or lengths than the configuration.
    """
    torch.manual_seed(config.seed)
    schema, cross = config.field_schema, config.cross
    trained = load_reranker(init).model if (init / CROSS_FILE).is_file() else None
    shape = trained.config if trained is not None else bert_config(init)
    model = CrossEncoder(
        CrossConfig(
            vocabulary=shape.vocabulary,
            hidden=shape.hidden,
            heads=shape.heads,
            intermediate=shape.intermediate,
            layer_norm_eps=shape.layer_norm_eps,
            layers=len(cross.init_layers),
            split=cross.split,
            compressed=cross.compressed,
            late=cross.late,
            query_tokens=schema.query_tokens,
            document_tokens=schema.document_tokens,
            fields=len(schema.fields),
            weight_form=cross.weight_form,
            dropout=cross.dropout,
        )
    )
    if trained is None:
        init_cross_encoder(model, init, cross.init_layers)
    else:
        _go_on(model, trained)
    return model


def _go_on(model: CrossEncoder, trained: CrossEncoder) -> None:
    """Takes over what both have."""
    sizes = ("layers", "fields", "query_tokens", "document_tokens")
    wanted, found = ({name: getattr(one.config, name) for name in sizes} for one in (model, trained))
    if wanted != found:
        raise MismatchError(f"the checkpoint has {found}, the configuration asks for {wanted}; give the same")
    known = {
        name: value
        for name, value in trained.state_dict().items()
        if name in model.state_dict() and model.state_dict()[name].shape == value.shape
    }
    model.load_state_dict(known, strict=False)
