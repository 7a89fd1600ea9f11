"""Times re-ranking of a query's candidates: its parts in 8 bits and float, compared with a full six-layer cross-encoder.

python -m benchmarks.rerank_latency --checkpoint CKPT --data $DATA/tldr --run runs/tldr-dev.trec [--depth 50] [--threads 2]

Stored token embeddings are decoded and passed on as in a service. The default model's document tower represents the full
cross-encoder: its six layers of the same shape read as many tokens as query and document have together.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray

from benchmarks.report import emit, table
from glow.artifact import default_model
from glow.runtime import Encoder, Model
from glow.text import pad
from glow.training.data import read_collection
from glow.training.rerank import load_reranker, read_candidates
from glow.training.rerank.candidates import Texts
from glow_model_export.quantize import Quantization, quantize_matrices
from glow_model_export.rerank_graphs import RERANK_GRAPHS, export_rerank_graphs

Inputs = dict[str, NDArray[Any]]


def main(
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint of a re-ranker.")],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    run: Annotated[Path, typer.Option(help="TREC run of first-stage retrieval.")],
    depth: Annotated[int, typer.Option(help="Candidates a query.")] = 50,
    threads: Annotated[int, typer.Option(help="Of ONNX Runtime.")] = 2,
    queries: Annotated[int, typer.Option(help="How many are timed.")] = 100,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
) -> None:
    """Prints medians in milliseconds per query."""
    found = load_reranker(checkpoint)
    collection = read_collection(data, "dev", found.preprocessor.schema)
    candidates = read_candidates(run, collection, depth)
    texts = Texts(collection, found.preprocessor)
    pad_id = found.preprocessor.pieces.pad_id
    chosen = [
        n
        for n in np.random.default_rng(0).permutation(len(candidates.rows))
        if len(candidates.rows[n]) == depth
    ]
    chosen = chosen[:queries]
    tokens = [sum(len(texts.document(row)) for row in candidates.rows[n].tolist()) / depth for n in chosen]
    rows: list[list[Any]] = []
    graphs = export_rerank_graphs(found.model)
    forms: tuple[Quantization, ...] = ("none", "int8")
    with tempfile.TemporaryDirectory() as scratch:
        for form in forms:
            sessions = {}
            for name, graph in graphs.items():
                path = Path(scratch) / f"{form}-{name}"
                copied = onnx.ModelProto.FromString(graph.SerializeToString())
                onnx.save(quantize_matrices(copied, form), path)
                sessions[name] = _session(path, threads)
            timed = [_parts(sessions, texts, n, candidates.rows[n].tolist(), pad_id) for n in chosen]
            for part in timed[0]:
                rows.append([f"{part}, {form}", _median([one[part] for one in timed])])
    model = Model.open(default_model())
    longest = model.preprocessor.schema.document_tokens
    tower = model.encoder("document", "cpu", threads, 1 << 20)
    whole = [_whole(tower, texts, n, candidates.rows[n].tolist(), longest) for n in chosen[:30]]
    rows.append(["six layers over both, int8", _median(whole)])
    report = {
        "depth": depth,
        "threads": threads,
        "queries": len(chosen),
        "document_tokens": round(float(np.mean(tokens)), 1),
    }
    shape = found.model.config.model_dump(include={"layers", "split", "compressed", "late"})
    emit({**report, "shape": shape, "rows": rows}, table(["part", "ms a query"], rows), json_file, None)


def _parts(
    sessions: dict[str, onnxruntime.InferenceSession], texts: Texts, number: int, rows: list[int], pad_id: int
) -> dict[str, float]:
    query = pad([texts.query(number)], pad_id)
    documents = pad([texts.document(row) for row in rows], pad_id)
    stored = sessions[RERANK_GRAPHS[1]].run(
        None, {"ids": documents.ids, "mask": documents.mask, "field_ids": documents.field_ids}
    )[0]
    states = sessions[RERANK_GRAPHS[0]].run(None, {"ids": query.ids, "mask": query.mask})[0]
    pairs: Inputs = {"query": states, "query_mask": query.mask, "stored": stored, "mask": documents.mask}
    found = {
        "query": _ms(lambda: sessions[RERANK_GRAPHS[0]].run(None, {"ids": query.ids, "mask": query.mask}))
    }
    for name in RERANK_GRAPHS[2:]:
        if name in sessions:
            session = sessions[name]
            found[name.removesuffix(".onnx")] = _ms(lambda session=session: session.run(None, pairs))  # type: ignore[misc]
    return found


def _whole(tower: Encoder, texts: Texts, number: int, rows: list[int], longest: int) -> float:
    """Sequences are cut to the tower's token limit, which favors it."""
    asked = len(texts.query(number))
    documents = [texts.document(row) for row in rows]
    batch = pad(documents, 0, max(map(len, documents)) + asked)
    batch.mask[:] = 1
    arrays: Inputs = {
        "ids": batch.ids,
        "mask": batch.mask,
        "field_ids": batch.field_ids,
        "weights": batch.weights,
    }
    inputs = {name: array[:, :longest] for name, array in arrays.items()}
    return _ms(lambda: tower._session.run(["vector"], inputs))


def _ms(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best


def _median(values: list[float]) -> float:
    return round(float(np.median(values)), 2)


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    typer.run(main)
