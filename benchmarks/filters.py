"""Measures recall and latency of filtered searches by selectivity, and the cost of columns.

`OMP_NUM_THREADS=1 python -m benchmarks.filters --json FILE` takes about four minutes of one core, most of it for building the graph;
`--keep DIR` keeps built indexes for the next run. The vectors are those of benchmarks/dense_index.py (synthetic clusters
with noise, a hard case) or, with `--vectors DIR`, the `vectors.npy` and `queries.npy` of benchmarks/scale/__main__.py.
The metadata is random and independent of the vectors. Times are CPU times of one thread, so other load on the machine
matters little.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.dense_index import made_up
from benchmarks.machine import machine
from glow.index import RowMask
from glow.index.columns import Columns, build_columns
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import FilterMasks, count_values, evaluate
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.vectors import HNSW_EF_SEARCH, DenseIndex, IndexKind, build_dense, set_threads, should_scan
from glow.records import Document

Vectors = NDArray[np.float32]
DEPTH = 10
DIMENSIONS = 384
SELECTIVITIES = (0.0001, 0.001, 0.01, 0.1, 0.2, 0.3, 0.5)
MEASURED: tuple[IndexKind, ...] = ("flat", "hnsw")


@dataclass(frozen=True, slots=True)
class Row:
    """One kind at one selectivity; `way` is the search method. CPU milliseconds, one query at a time."""

    kind: IndexKind
    selectivity: float
    allowed: int
    way: str
    recall: float
    p50_ms: float
    p99_ms: float


def main(
    count: Annotated[int, typer.Option(help="Documents.")] = 100_000,
    vectors: Annotated[Path | None, typer.Option(help="Folder with vectors.npy and queries.npy.")] = None,
    queries: Annotated[int, typer.Option(help="Queries, one at a time.")] = 200,
    threads: Annotated[int, typer.Option(help="Threads of building; searching has one.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Where built indexes stay.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the results.")] = None,
) -> None:
    """Measures every kind at every selectivity, and the columns behind the filters."""
    documents, asked = read(vectors, count)
    asked = asked[:queries]
    with tempfile.TemporaryDirectory() as folder:
        columns, costs = make_columns(len(documents), Path(folder))
        masks = {share: mask_of(columns, share) for share in SELECTIVITIES}
        scores = asked @ documents.T
        wanted = {share: nearest(scores, mask) for share, mask in masks.items()}
        wanted[1.0] = nearest(scores, RowMask(np.ones(len(documents), np.bool_)))
        rows = []
        for kind in MEASURED:
            index = opened(documents, kind, threads, keep or Path(folder))
            for share in (*SELECTIVITIES, 1.0):
                row = measure(index, asked, masks.get(share), share, wanted[share], columns.order)
                rows.append(row)
                sys.stdout.write(
                    f"{row.kind:<8} {row.selectivity:7.2%} {row.allowed:>7} {row.way:<7} recall {row.recall:.4f} "
                    f"p50 {row.p50_ms:8.3f} ms p99 {row.p99_ms:8.3f} ms\n"
                )
                sys.stdout.flush()
    sys.stdout.write(json.dumps(costs) + "\n")
    results = {
        "machine": machine(),
        "documents": len(documents),
        "columns": costs,
        "rows": [asdict(row) for row in rows],
    }
    if json_file:
        json_file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def read(folder: Path | None, count: int) -> tuple[Vectors, Vectors]:
    """Reads documents and queries, float32 [n, D] and [q, D]."""
    if folder is None:
        return made_up(count, DIMENSIONS)
    return np.load(folder / "vectors.npy", mmap_mode="r")[:count], np.load(folder / "queries.npy")


def make_columns(count: int, folder: Path) -> tuple[Columns, dict[str, Any]]:
    """Random metadata as columns, and the cost of columns and of filters over them."""
    generator = np.random.default_rng(0)
    langs, tags = ["en", "de", "fr", "ja", "es"], [f"tag{number}" for number in range(1000)]
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row in range(count):
            metadata = {
                "share": float(generator.random()),
                "lang": langs[int(generator.integers(5))],
                "year": int(generator.integers(1950, 2026)),
                "tags": [tags[int(at)] for at in generator.integers(1000, size=int(generator.integers(4)))],
            }
            writer.add(Document(f"d{row}", {"title": ("made up",)}, metadata))
    store = DocumentStore(folder / "documents.sqlite")
    start = time.process_time()
    build_columns(store, folder)
    build_cpu_s = time.process_time() - start
    size = sum(path.stat().st_size for path in (folder / "columns").iterdir())
    columns = Columns.open(folder, count)
    values: dict[str, Any] = {
        "one number range": {"field": "share", "lt": 0.1},
        "one of 1,000 tags": {"field": "tags", "eq": "tag7"},
        "and of three": {
            "and": [
                {"field": "lang", "in": ["en", "fr"]},
                {"field": "year", "gte": 2000},
                {"not": {"field": "tags", "exists": False}},
            ]
        },
        "1,000 values": {"field": "tags", "in": tags[:998]},
    }
    costs: dict[str, Any] = {
        "build_us_per_document": round(1e6 * build_cpu_s / count, 1),
        "bytes_per_document": round(size / count, 1),
        "mask_ms": {name: _median_ms(_evaluation(value, columns)) for name, value in values.items()},
    }
    every, some, masks = np.ones(count, np.bool_), np.arange(200), FilterMasks(columns)
    expression = parse_filter(values["and of three"], columns)
    costs["kept_mask_ms"] = _median_ms(lambda: masks.mask(expression))
    costs["facet_ms"] = {
        "200 candidates": _median_ms(lambda: count_values(columns, "tags", some, 10, count)),
        "all documents": _median_ms(lambda: count_values(columns, "tags", every, 10, count)),
    }
    return columns, costs


def mask_of(columns: Columns, share: float) -> RowMask:
    """A mask of about this fraction of the documents, at least ten."""
    part = columns.fields["share"].parts["number"]
    least = part.values.value(max(round(share * columns.documents), DEPTH) - 1)
    return RowMask(evaluate(parse_filter({"field": "share", "lte": least}, columns), columns))


def nearest(scores: Vectors, mask: RowMask) -> NDArray[np.int64]:
    """Exact top rows among the allowed, int64 [q, DEPTH]."""
    found = np.argsort(-scores[:, mask.rows], axis=1, kind="stable")[:, :DEPTH]
    return mask.rows[found]


def opened(vectors: Vectors, kind: IndexKind, threads: int, folder: Path) -> DenseIndex:
    """An index opened from its file as a service does."""
    path = folder / f"{kind}-{len(vectors)}.faiss"
    if not path.exists():
        set_threads(threads)
        build_dense(vectors, kind).save(path)
    set_threads(1)
    return DenseIndex.load(path)


def measure(
    index: DenseIndex,
    queries: Vectors,
    allowed: RowMask | None,
    share: float,
    wanted: NDArray[np.int64],
    order: NDArray[np.uint32],
) -> Row:
    """Searches one query at a time."""
    times, hits = [], 0
    for query in queries[:20]:
        index.search(query[None], DEPTH, allowed=allowed, order=order)
    for row in range(len(queries)):
        start = time.thread_time()
        found = index.search(queries[row : row + 1], DEPTH, allowed=allowed, order=order)[1]
        times.append((time.thread_time() - start) * 1e3)
        hits += len(np.intersect1d(found[0], wanted[row]))
    count = allowed.count if allowed else len(index)
    scanned = index.kind == "flat" or (
        index.kind == "hnsw" and allowed is not None and should_scan(count, len(index), HNSW_EF_SEARCH)
    )
    way = "exact" if scanned else "graph" if index.kind == "hnsw" else "lists"
    p50, p99 = np.quantile(times, (0.5, 0.99))
    return Row(index.kind, share, count, way, round(hits / wanted.size, 4), round(p50, 3), round(p99, 3))


def _evaluation(value: dict[str, Any], columns: Columns) -> Callable[[], Any]:
    return lambda: RowMask(evaluate(parse_filter(value, columns), columns))


def _median_ms(call: Callable[[], Any], rounds: int = 21) -> float:
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        times.append((time.thread_time() - start) * 1e3)
    return round(float(np.median(times)), 4)


if __name__ == "__main__":
    typer.run(main)
