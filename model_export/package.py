"""Packages towers as a model artifact: graphs, quantization, parity."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TOWER_WEIGHTS, file_records, model_hash, write_artifact
from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import ExportError
from glow.evaluation import Corpus, DenseOptions, DenseRetriever, evaluate, find_tasks
from glow.nn import TwoTowers
from glow.records import Document
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.text import Preprocessor
from glow.training import REPORT_FILE, save_preprocessing
from glow_model_export.graph import export_graph
from glow_model_export.outputs import write_explain
from glow_model_export.parity import check_parity, parity_texts
from glow_model_export.quantize import Quantization, move_weights, quantize_matrices, share_word_table

MAX_NDCG_LOSS = 0.01
MEASURE = "nDCG@10"


@dataclass(frozen=True, slots=True)
class Source:
    """The input of an export: towers, their preprocessing and their provenance."""

    towers: TwoTowers
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    parent: Mapping[str, Any]


def export_model(
    source: Source,
    out: Path,
    how: Quantization,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
    quality: Mapping[str, Any] | None = None,
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Writes a model artifact, or nothing if a parity check fails; returns what its `report.json` says of the export.

    Args:
        source: the trained towers.
        out: directory to create.
        how: precision of the towers.
        queries, documents: texts for the parity check; default: words of the term statistics.
        quality: retrieval figures to store with the model.
        replace: whether an existing model may be replaced.
    """
    texts = parity_texts(source.preprocessor, queries, documents)
    with write_artifact(out, "model", replace=replace) as writer, tempfile.TemporaryDirectory() as scratch:
        traced = {name: export_graph(tower) for name, tower in _named(source.towers).items()}
        _write_towers(traced, Path(scratch), "none")
        _write_towers(traced, writer.folder, how)
        pad_id = source.preprocessor.pieces.pad_id
        parity = {
            name: asdict(check_parity(tower, Path(scratch) / name, writer.folder / name, texts[name], pad_id))
            for name, tower in _named(source.towers).items()
        }
        write_explain(writer.folder, texts, pad_id)
        report = {"precision": how, "parity": parity, "quality": dict(quality or {})}
        text = json.dumps({**report, "training": source.report}, indent=2)
        (writer.folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
        source.towers.config.save(writer.folder / "towers.json")
        save_preprocessing(writer.folder, source.preprocessor)
        writer.parents["source"] = dict(source.parent)
        writer.parameters["precision"] = how
        writer.counts["dimensions"] = source.towers.config.hidden
        writer.hashes["terms"] = source.preprocessor.terms.hash
        writer.hashes["model"] = model_hash(file_records(writer.folder))
    return report


def _write_towers(traced: Mapping[str, ModelProto], folder: Path, how: Quantization) -> None:
    graphs = {name: quantize_matrices(_copy(graph), how) for name, graph in traced.items()}
    share_word_table(graphs, folder, int8=how == "int8")
    for name, graph in graphs.items():
        move_weights(folder / TOWER_WEIGHTS[name], graph)
        onnx.save(graph, folder / name)


def _copy(graph: ModelProto) -> ModelProto:
    copied = ModelProto()
    copied.CopyFrom(graph)
    return copied


def _named(towers: TwoTowers) -> dict[str, Any]:
    return {QUERY_TOWER: towers.query, DOCUMENT_TOWER: towers.document}


def check_quality(
    source: Source,
    how: Quantization,
    data: Path,
    split: str,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> dict[str, Any]:
    """Searches a split exactly with float and with quantized towers; refuses a loss over `MAX_NDCG_LOSS`.

    The texts are for the parity check of both: after little training, quantized towers differ from float ones on random words,
    but not on natural texts. Returns `data`, `split`, `queries` and nDCG@10 by precision.
    """
    (task,) = find_tasks(data, [split])
    corpus = Corpus(data, source.preprocessor.schema.names)
    options = DenseOptions(threads=os.cpu_count() or 1)
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for precision in dict.fromkeys(("none", how)):
            folder = Path(scratch) / precision
            export_model(source, folder, precision, queries, documents)
            retriever = DenseRetriever(Model.open(folder), corpus, options)
            run = retriever.search(task.queries, 100)
            values[precision] = evaluate(run, task.qrels, [MEASURE]).means[MEASURE]
    if values["none"] - values[how] > MAX_NDCG_LOSS:
        raise ExportError(
            f"{how} towers reach {MEASURE} {values[how]:.4f} on {task.data} {split}, float ones {values['none']:.4f}: "
            f"a loss over {MAX_NDCG_LOSS}; export with --quantize none or fp16"
        )
    return {"data": task.data, "split": split, "queries": len(task.queries), MEASURE: values}


def judged_texts(data: Path, split: str, schema: FieldSchema) -> tuple[list[str], list[Document]]:
    """The judged queries and documents of a split, for the parity check."""
    judged = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    query_ids, document_ids = {row.query_id for row in judged}, {row.document_id for row in judged}
    documents = read_documents(data / "corpus.jsonl", schema.names)
    return (
        [query.text for query in read_queries(data / "queries.jsonl") if query.id in query_ids],
        [document for document in documents if document.id in document_ids],
    )
