"""Compares the towers' precisions: size, closeness to float, batch invariance, retrieval quality and time.

python -m benchmarks.quantization --checkpoint CKPT --data $DATA/tldr [--split dev]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from onnx import ModelProto
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from benchmarks.report import emit_json
from glow.collection import read_documents, read_qrels, read_queries
from glow.evaluation.measures import evaluate
from glow.nn.towers import Tower
from glow.records import Hit, Qrel
from glow.runtime import Encoder
from glow.text import WeightedTokens
from glow.text.preprocessor import pad
from glow.training.checkpoint import Checkpoint, load_checkpoint
from glow_model_export.graph import export_graph
from glow_model_export.quantize import quantize_matrices

MIXED_BATCH = 32
SERVED_BATCH = 8
Convert = Callable[[Path, Path, list[WeightedTokens]], None]


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    """Feeds real texts to the calibration of fixed activation scales."""

    def __init__(self, sequences: list[WeightedTokens]) -> None:
        self._batches = iter([sequences[start : start + 16] for start in range(0, len(sequences), 16)])

    def get_next(self) -> dict[str, Any] | None:
        """One batch as tower inputs; None at the end."""
        chunk = next(self._batches, None)
        if not chunk:
            return None
        batch = pad(chunk, 0)
        return {"ids": batch.ids, "mask": batch.mask, "field_ids": batch.field_ids, "weights": batch.weights}


def _copy(source: Path, target: Path, texts: list[WeightedTokens]) -> None:
    target.write_bytes(source.read_bytes())


def _dynamic(source: Path, target: Path, texts: list[WeightedTokens]) -> None:
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])


def _static(source: Path, target: Path, texts: list[WeightedTokens]) -> None:
    quantize_static(
        source,
        target,
        _Calibration(texts[:128]),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.MinMax,
    )


def _blockwise(block: int, accuracy_level: int, bits: int = 8) -> Convert:
    def convert(source: Path, target: Path, texts: list[WeightedTokens]) -> None:
        model = onnx.load(source)
        quantizer = MatMulNBitsQuantizer(
            model, block_size=block, is_symmetric=True, bits=bits, accuracy_level=accuracy_level
        )
        quantizer.process()
        onnx.save(quantizer.model.model, target)

    return convert


def _by_rows(source: Path, target: Path, texts: list[WeightedTokens]) -> None:
    onnx.save(quantize_matrices(onnx.load(source), "int8"), target)


VARIANTS: dict[str, Convert] = {
    "float": _copy,
    "a scale for each token and column": _by_rows,
    "dynamic int8": _dynamic,
    "static int8 (calibrated)": _static,
    "blocks of 32, int8 accumulation": _blockwise(32, 4),
    "blocks of 128, int8 accumulation": _blockwise(128, 4),
    "blocks of 128, float accumulation": _blockwise(128, 1),
    "blocks of 32, 4 bits": _blockwise(32, 4, bits=4),
}


def main(
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint of a trained model.")],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    split: Annotated[str, typer.Option(help="Split of its judgements.")] = "dev",
) -> None:
    """Prints one JSON object with a row for each precision."""
    found = load_checkpoint(checkpoint)
    qrels = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    wanted = {qrel.query_id for qrel in qrels}
    queries = [query for query in read_queries(data / "queries.jsonl") if query.id in wanted]
    documents = list(read_documents(data / "corpus.jsonl", found.preprocessor.schema.names))
    query_tokens = [found.preprocessor.query(query.text) for query in queries]
    document_tokens = [found.preprocessor.document(document) for document in documents]
    query_ids, document_ids = [query.id for query in queries], [document.id for document in documents]
    rows: dict[str, Any] = {}
    reference: tuple[np.ndarray, np.ndarray] | None = None
    with tempfile.TemporaryDirectory() as scratch:
        sources = _export(found, Path(scratch))
        for name, convert in VARIANTS.items():
            encoders, sizes = {}, {}
            for side, texts in (("query", query_tokens), ("document", document_tokens)):
                target = Path(scratch) / f"{side}-variant.onnx"
                convert(sources[side], target, texts)
                sizes[side] = _matrix_bytes(target)
                encoders[side] = Encoder(target, threads=1 if side == "query" else 2)
            row, vectors = _measure(encoders, query_tokens, document_tokens, reference)
            reference = reference or vectors
            row["nDCG@10"] = _ndcg(vectors, query_ids, document_ids, qrels)
            row["tower_megabytes"] = round(sizes["document"] / 1e6, 1)
            rows[name] = row
            sys.stderr.write(f"{name}: {row}\n")
    emit_json({"data": data.name, "rows": rows})


def _export(found: Checkpoint, folder: Path) -> dict[str, Path]:
    towers: dict[str, Tower] = {"query": found.towers.query, "document": found.towers.document}
    paths = {}
    for side, tower in towers.items():
        model: ModelProto = export_graph(tower)
        paths[side] = folder / f"{side}.onnx"
        onnx.save(model, paths[side])
    return paths


def _matrix_bytes(path: Path) -> int:
    """Bytes of a tower without its token embeddings, which all variants could store alike."""
    model = onnx.load(path)
    table = next(t for t in model.graph.initializer if t.name == "words.weight")
    return path.stat().st_size - len(table.raw_data)


def _measure(
    encoders: dict[str, Encoder],
    queries: list[WeightedTokens],
    documents: list[WeightedTokens],
    reference: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    encoder = encoders["query"]
    start = time.perf_counter()
    document_vectors = encoders["document"].encode(documents)
    document_seconds = time.perf_counter() - start
    seconds, alone = [], []
    for tokens in queries:
        start = time.perf_counter()
        alone.append(encoder.encode([tokens])[0])
        seconds.append(time.perf_counter() - start)
    single = np.stack(alone)
    batched = np.concatenate(
        [encoder.run(queries[start : start + MIXED_BATCH]) for start in range(0, len(queries), MIXED_BATCH)]
    )
    top = [
        np.argsort(-(vectors @ document_vectors.T), axis=1, kind="stable")[:, :10]
        for vectors in (single, batched)
    ]
    expected = reference[0] if reference else single
    row = {
        "mean_cosine": round(float((single * expected).sum(1).mean()), 6),
        "min_cosine": round(float((single * expected).sum(1).min()), 6),
        "alone_or_in_batch_max_difference": float(np.abs(single - batched).max()),
        "alone_or_in_batch_same_top_10": round(float((top[0] == top[1]).all(1).mean()), 4),
        "query_ms_p50": round(1e3 * float(np.median(seconds)), 3),
        "query_ms_in_batches_of_8": round(_batched_ms(encoder, queries), 3),
        "documents_per_second": round(len(documents) / document_seconds, 1),
    }
    return row, (single, document_vectors)


def _batched_ms(encoder: Encoder, queries: list[WeightedTokens]) -> float:
    """Median milliseconds per query in batches of similar length, as a service makes them under load."""
    ordered = sorted(queries, key=len)
    seconds = []
    for first in range(0, len(ordered) - SERVED_BATCH + 1, SERVED_BATCH):
        start = time.perf_counter()
        encoder.run(ordered[first : first + SERVED_BATCH])
        seconds.append(time.perf_counter() - start)
    return 1e3 * float(np.median(seconds)) / SERVED_BATCH


def _ndcg(
    vectors: tuple[np.ndarray, np.ndarray], query_ids: list[str], document_ids: list[str], qrels: list[Qrel]
) -> float:
    scores = vectors[0] @ vectors[1].T
    top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    run = {
        query: [Hit(document_ids[row], float(scores[number, row])) for row in top[number]]
        for number, query in enumerate(query_ids)
    }
    return round(evaluate(run, qrels, ["nDCG@10"]).means["nDCG@10"], 4)


if __name__ == "__main__":
    typer.run(main)
