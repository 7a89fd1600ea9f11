"""Packages towers as a model artifact: graphs, quantization, parity, and the graphs that explanations need.

An explain graph refers to the weights of the exported one, so its vectors are bit for bit those of the plain tower.

    B   batch       n   heads       L   tokens
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import EXPLAIN_TOWERS, TOWER_WEIGHTS, file_records, model_hash, write_artifact
from glow.collection import read_documents, read_qrels, read_queries
from glow.commands import JsonOptions, option, write_report
from glow.encoders import TowerConfig
from glow.errors import ExportError
from glow.evaluation import Corpus, DenseOptions, DenseRetriever, evaluate, find_tasks
from glow.index import REPORT_FILE
from glow.records import Document
from glow.runtime import ATTENTION, AttentionEncoder, Encoder, Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, WeightedTokens, save_preprocessor
from glow_model_export.parity import check_parity, parity_texts
from glow_model_export.quantize import Quantization, move_weights, quantize_matrices, share_word_table

MAX_NDCG_LOSS = 0.01
MEASURE = "nDCG@10"
_MAX_ERROR = 1e-3
"""Tolerance of an attention row's sum, which is 1; fp16 is the coarsest."""
_CHECKED_TEXTS = 16


@dataclass(frozen=True, slots=True)
class Source:
    """The input of an export: towers as graphs, their preprocessing and their provenance."""

    config: TowerConfig
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    parent: Mapping[str, Any]
    graph: Callable[[str], ModelProto]  # a tower's float32 graph by its file, made anew by each call
    # A tower's vectors in torch, by its file; None if torch had no part in it.
    reference: Callable[[str, Sequence[WeightedTokens]], NDArray[np.float32]] | None = None


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

    Queries and documents are texts for the parity check; default: words of the term statistics.
    """
    texts = parity_texts(source.preprocessor, queries, documents)
    with (
        write_artifact(out, "model", replace=replace) as writer,
        tempfile.TemporaryDirectory(prefix=".", dir=out.parent) as scratch,
    ):
        floats = Path(scratch) if how != "none" else writer.folder
        if how != "none":
            _write_towers(source, floats, "none")
        _write_towers(source, writer.folder, how)
        pad_id = source.preprocessor.pieces.pad_id
        parity = {}
        for name in TOWER_WEIGHTS:
            reference = source.reference and source.reference(name, texts[name])
            checked = check_parity(reference, floats / name, writer.folder / name, texts[name], pad_id)
            parity[name] = asdict(checked)
        write_explain(writer.folder, texts, pad_id)
        report = {"precision": how, "parity": parity, "quality": dict(quality or {})}
        text = json.dumps({**report, "training": source.report}, indent=2)
        (writer.folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
        source.config.save(writer.folder / "towers.json")
        save_preprocessor(writer.folder, source.preprocessor)
        writer.parents["source"] = dict(source.parent)
        writer.parameters["precision"] = how
        writer.counts["dimensions"] = source.config.hidden
        writer.hashes["terms"] = source.preprocessor.terms.hash
        writer.hashes["model"] = model_hash(file_records(writer.folder))
    return report


def _write_towers(source: Source, folder: Path, how: Quantization) -> None:
    graphs = {name: quantize_matrices(source.graph(name), how) for name in TOWER_WEIGHTS}
    share_word_table(graphs, folder, int8=how == "int8")
    for name, graph in graphs.items():
        move_weights(folder / TOWER_WEIGHTS[name], graph)
        onnx.save(graph, folder / name)


def write_explain(folder: Path, texts: Mapping[str, Sequence[WeightedTokens]], pad_id: int) -> None:
    """Writes the explain graph of each tower beside it, and checks by each tower's texts that its vectors are equal."""
    for tower, name in EXPLAIN_TOWERS.items():
        onnx.save(add_attention(onnx.load(folder / tower, load_external_data=False)), folder / name)
        _check_attention(folder / tower, folder / name, texts[tower][:_CHECKED_TEXTS], pad_id)


def add_attention(model: ModelProto) -> ModelProto:
    """Gives a tower's graph the output `attention`, float32 [B, L], in place: row 0 of the last softmax, mean over heads.

    That is the attention that each token gets from [CLS] in the last layer; GLOW's Table 4 has another measure.
    """
    graph = model.graph
    readers = {name: node for node in graph.node for name in node.input}
    softmaxes = [node for node in graph.node if node.op_type == "Softmax" and node.output[0] in readers]
    if not softmaxes:
        raise ExportError("the graph has no attention softmax; export the model again with this version")
    constants = {f"{ATTENTION}.first": np.array(0, np.int64), f"{ATTENTION}.heads": np.array([1], np.int64)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.extend(_attention_steps(softmaxes[-1].output[0]))
    shape = [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim]
    graph.output.append(helper.make_tensor_value_info(ATTENTION, TensorProto.FLOAT, shape))
    return model


def _attention_steps(probabilities: str) -> list[NodeProto]:
    """[B, n, L, L] -> the row of [CLS], [B, n, L] -> mean over heads, [B, L]."""
    first, row, whole = f"{ATTENTION}.first", f"{ATTENTION}.row", f"{ATTENTION}.float"

    def step(kind: str, inputs: list[str], out: str, **attributes: Any) -> NodeProto:
        return helper.make_node(kind, inputs, [out], f"{out}.{kind}", **attributes)

    return [
        step("Gather", [probabilities, first], row, axis=2),
        step("Cast", [row], whole, to=TensorProto.FLOAT),
        step("ReduceMean", [whole, f"{ATTENTION}.heads"], ATTENTION, keepdims=0),
    ]


def _check_attention(plain: Path, explained: Path, sequences: Sequence[WeightedTokens], pad_id: int) -> None:
    expected = Encoder(plain, pad_id).run(sequences)
    vectors, attention = AttentionEncoder(explained, pad_id).run(sequences)
    if not np.array_equal(vectors, expected):
        difference = float(np.abs(vectors - expected).max())
        raise ExportError(
            f"{explained.name} gives other vectors than {plain.name}, by up to {difference:.1e}"
        )
    error = float(np.abs(attention.sum(1) - 1.0).max())
    if not error < _MAX_ERROR:
        raise ExportError(f"{explained.name}: attention of a text sums to 1 only within {error:.1e}")


def check_quality(
    source: Source,
    how: Quantization,
    data: Path,
    split: str,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> dict[str, Any]:
    """Searches a split exactly with float and with quantized towers; refuses a loss over `MAX_NDCG_LOSS`.

    Natural texts are for the parity check of both. Returns `data`, `split`, `queries` and nDCG@10 by precision.
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


class OutputOptions(JsonOptions):
    """Where to write a model, in which precision, and how to check it."""

    out: Path = option(..., "Model directory to write.", metavar="DIR")
    quantize: Quantization = option("none", "Precision of the towers.")
    parity_data: Path | None = option(
        None,
        "BEIR directory for the parity check; also reports nDCG@10 of quantized against float towers.",
        metavar="DIR",
    )
    split: str = option("dev", "Split of --parity-data.")
    replace: bool = option(False, "Replace an existing model.")


def show_report(options: JsonOptions, report: Mapping[str, Any]) -> None:
    """Writes a report to `--json`, and prints it unless that is standard output."""
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
