"""`glow export-model`: exports trained towers or a re-ranker as a model artifact."""

import json
from pathlib import Path
from typing import Any

from glow.artifact import read_manifest
from glow.commands import command, option
from glow.errors import ConfigError
from glow.index import DEFAULT_RERANK_WEIGHT, RerankWeight
from glow.runtime import Model
from glow.training import kind_of, load_checkpoint, load_reranker, read_towers
from glow_model_export.graph import torch_source
from glow_model_export.outputs import add_head
from glow_model_export.package import (
    OutputOptions,
    Source,
    check_quality,
    export_model,
    judged_texts,
    show_report,
)
from glow_model_export.rerank import RerankSource, export_reranker


class ExportOptions(OutputOptions):
    """What to export."""

    checkpoint: Path | None = option(None, "Checkpoint directory to export.", metavar="DIR")
    from_model: Path | None = option(None, "Model to export again, in place of a checkpoint.", metavar="DIR")
    learned: Path | None = option(
        None,
        "Checkpoint of learned impacts: copies --from-model, weights and hash unchanged, and adds them.",
        metavar="DIR",
    )
    share: float = option(
        DEFAULT_RERANK_WEIGHT.share,
        "Weight of a re-ranker's score relative to first-stage retrieval.",
        flag="--rerank-weight",
        ge=0.0,
    )


@command(ExportOptions)
def export_command(options: ExportOptions) -> None:
    """Exports encoders or a re-ranker to ONNX, checks them against torch, and packages the model."""
    if options.learned is not None:
        report = _with_head(options, options.learned)
    elif (options.checkpoint is None) == (options.from_model is None):
        raise ConfigError("give either --checkpoint or --from-model")
    elif options.checkpoint is not None and kind_of(options.checkpoint) == "reranker":
        report = _reranker(options, options.checkpoint)
    else:
        report = _towers(options, _source(options))
    show_report(options, report)


def _with_head(options: ExportOptions, head: Path) -> dict[str, Any]:
    others = options.checkpoint, options.parity_data
    if options.from_model is None or any(each is not None for each in others) or options.quantize != "none":
        raise ConfigError("--learned copies a model as it is: give it with --from-model and --out alone")
    return add_head(options.from_model, head, options.out, replace=options.replace)


def _reranker(options: ExportOptions, checkpoint: Path) -> dict[str, Any]:
    trained, data = load_reranker(checkpoint), options.parity_data
    parent = {"checkpoint": checkpoint.name, "sha256": read_manifest(checkpoint, "checkpoint").hash}
    texts = judged_texts(data, options.split, trained.preprocessor.schema) if data else ([], [])
    source = RerankSource(trained.model, trained.preprocessor, trained.report, parent)
    weight = RerankWeight(share=options.share)
    return export_reranker(source, options.out, options.quantize, *texts, weight, replace=options.replace)


def _towers(options: ExportOptions, source: Source) -> dict[str, Any]:
    data, split, how = options.parity_data, options.split, options.quantize
    texts = judged_texts(data, split, source.preprocessor.schema) if data else ([], [])
    quality = check_quality(source, how, data, split, *texts) if data else {}
    return export_model(source, options.out, how, *texts, quality, replace=options.replace)


def _source(options: ExportOptions) -> Source:
    if options.checkpoint is not None:
        trained = load_checkpoint(options.checkpoint)
        parent = {"checkpoint": options.checkpoint.name, "sha256": trained.manifest.hash}
        return torch_source(trained.towers, trained.preprocessor, trained.report, parent)
    model = Model.open(options.from_model or Path())
    report = json.loads((model.folder / "report.json").read_bytes()).get("training", {})
    parent = {"model": model.manifest.name, "hash": model.hash}
    return torch_source(read_towers(model), model.preprocessor, report, parent)
