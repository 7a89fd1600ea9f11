"""`glow export-model`: exports trained towers as a model artifact."""

import json
import sys
from pathlib import Path
from typing import Any

from glow.artifact import read_manifest
from glow.collection import read_documents, read_qrels, read_queries
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import ConfigError
from glow.index import DEFAULT_RERANK_WEIGHT, RerankWeight
from glow.records import Document
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.text import load_preprocessor
from glow.training import kind_of, load_checkpoint, load_reranker, read_towers
from glow_model_export.explain import add_explain as add_explain_graphs
from glow_model_export.learned import add_learned as add_learned_head
from glow_model_export.package import Source, export_model
from glow_model_export.quality import check_quality
from glow_model_export.quantize import Quantization
from glow_model_export.rerank_package import RerankSource, export_reranker
from glow_model_export.retrofit import model_with_tokens
from glow_model_export.tokens import TOKEN_SIZE, TOKEN_UNIT, read_projection

__all__ = ["ExportOptions", "export_command"]


class ExportOptions(JsonOptions):
    """What to export, in which precision, and how to check it."""

    out: Path | None = option(None, "Model directory to write.", metavar="DIR")
    checkpoint: Path | None = option(None, "Checkpoint directory to export.", metavar="DIR")
    from_model: Path | None = option(None, "Model to export again, in place of a checkpoint.", metavar="DIR")
    quantize: Quantization = option("none", "Precision of the towers.")
    parity_data: Path | None = option(
        None,
        "BEIR directory for the parity check; also reports nDCG@10 of quantized against float towers.",
        metavar="DIR",
    )
    split: str = option("dev", "Split of --parity-data.")
    share: float = option(
        DEFAULT_RERANK_WEIGHT.share,
        "Weight of a re-ranker's score relative to first-stage retrieval.",
        flag="--rerank-weight",
        ge=0.0,
    )
    replace: bool = option(False, "Replace an existing model.")
    token_size: int | None = option(
        None,
        f"Dimensions of token vectors for late interaction; 0: none. [default: as in --from-model, otherwise {TOKEN_SIZE}]",
        ge=0,
        multiple_of=TOKEN_UNIT,
    )
    add_tokens: Path | None = option(
        None,
        "Model to copy to --out with token vectors for late interaction; vectors stay the same, the hash changes.",
        metavar="DIR",
    )
    add_explain: Path | None = option(
        None, "Model to which only explain graphs are added; its hash stays the same.", metavar="DIR"
    )
    add_learned: Path | None = option(
        None,
        "Model to which only the learned impacts of --checkpoint are added; its hash stays the same.",
        metavar="DIR",
    )


@command(ExportOptions)
def export_command(options: ExportOptions) -> None:
    """Exports encoders or a re-ranker to ONNX, checks them against torch, and packages the model."""
    if options.add_explain:
        report = _add_explain(options.add_explain, options.out, options.checkpoint, options.from_model)
    elif options.add_tokens:
        report = _add_tokens(options, options.add_tokens)
    elif options.add_learned:
        if options.checkpoint is None or options.out or options.from_model:
            raise ConfigError("--add-learned changes a model in place: give it with --checkpoint alone")
        report = add_learned_head(options.add_learned, options.checkpoint)
    elif options.checkpoint is not None and kind_of(options.checkpoint) == "reranker":
        report = _export_reranker(options, options.checkpoint)
    else:
        target, source = _target(options.out), _source(options.checkpoint, options.from_model)
        data, split, quantize = options.parity_data, options.split, options.quantize
        queries, documents = _texts(data, split, source.preprocessor.schema)
        quality = check_quality(source, quantize, data, split, queries, documents) if data else {}
        size, again = options.token_size, options.replace
        report = export_model(
            source, target, quantize, queries, documents, quality, token_size=size, replace=again
        )
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _export_reranker(options: ExportOptions, checkpoint: Path) -> dict[str, Any]:
    if options.from_model is not None:
        raise ConfigError("give either --checkpoint or --from-model")
    trained = load_reranker(checkpoint)
    parent = {"checkpoint": checkpoint.name, "sha256": read_manifest(checkpoint, "checkpoint").hash}
    source = RerankSource(trained.model, trained.preprocessor, trained.report, parent)
    queries, documents = _texts(options.parity_data, options.split, trained.preprocessor.schema)
    target, rerank_weight = _target(options.out), RerankWeight(share=options.share)
    return export_reranker(
        source, target, options.quantize, queries, documents, rerank_weight, replace=options.replace
    )


def _add_explain(model: Path, *others: Path | None) -> dict[str, Any]:
    if any(others):
        raise ConfigError("--add-explain changes a model in place: give it without the options of an export")
    return {"model": model.name, "explain_bytes": add_explain_graphs(model)}


def _add_tokens(options: ExportOptions, model: Path) -> dict[str, Any]:
    if options.checkpoint or options.from_model or options.token_size == 0:
        raise ConfigError(
            "--add-tokens takes its weights from the model: give it with --out and --parity-data"
        )
    target = _target(options.out)
    queries, documents = _texts(options.parity_data, options.split, load_preprocessor(model).schema)
    size, again = options.token_size or TOKEN_SIZE, options.replace
    return model_with_tokens(model, target, queries, documents, token_size=size, replace=again)


def _target(out: Path | None) -> Path:
    if out is None:
        raise ConfigError("give --out, the model folder to make")
    return out


def _source(checkpoint: Path | None, from_model: Path | None) -> Source:
    if (checkpoint is None) == (from_model is None):
        raise ConfigError("give either --checkpoint or --from-model")
    if checkpoint:
        trained = load_checkpoint(checkpoint)
        parent = {"checkpoint": checkpoint.name, "sha256": trained.manifest.hash}
        return Source(trained.towers, trained.preprocessor, trained.report, parent)
    model = Model.open(from_model or Path())
    report = json.loads((model.folder / "report.json").read_bytes())
    parent = {"model": model.manifest.name, "hash": model.hash}
    towers = read_towers(model)
    projection = read_projection(model.folder, towers.config.hidden)
    return Source(towers, model.preprocessor, report.get("training", {}), parent, projection)


def _texts(data: Path | None, split: str, schema: FieldSchema) -> tuple[list[str], list[Document]]:
    """Queries and documents of the split, for the parity check."""
    if data is None:
        return [], []
    judged = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    wanted_queries = {qrel.query_id for qrel in judged}
    wanted_documents = {qrel.document_id for qrel in judged}
    queries = [query.text for query in read_queries(data / "queries.jsonl") if query.id in wanted_queries]
    documents = [
        document
        for document in read_documents(data / "corpus.jsonl", schema.names)
        if document.id in wanted_documents
    ]
    return queries, documents
