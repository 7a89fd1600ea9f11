"""Compares the kinds of dense index by size: search time, recall, build time and bytes.

`python -m benchmarks.dense_index --json runs/dense-index.json` takes about five minutes on two cores.
The vectors are synthetic: clusters in a space of few dimensions, rotated into D dimensions, with noise. Document
embeddings are similar, but their recall differs; every build reports its own.
"""

import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import faiss
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.machine import machine
from glow.index.vectors import (
    DEFAULT_NPROBE,
    HNSW_EF_SEARCH,
    KINDS,
    DenseIndex,
    IndexKind,
    SearchParams,
    build_dense,
    set_threads,
)

Vectors = NDArray[np.float32]
# Chosen so that the kinds differ: a query's best cosine is about .5, its tenth .4, a random one 0.
LATENT_DIMENSIONS = 64
CLUSTER_SIZE = 200
SPREAD = 1.5
NOISE = 0.5
QUERY_NOISE = 0.8
QUERIES = 200
DEPTH = 10
SWEEP: dict[IndexKind, tuple[SearchParams, ...]] = {
    "flat": (SearchParams(),),
    "hnsw": tuple(SearchParams(ef_search=ef) for ef in (32, 64, HNSW_EF_SEARCH, 128, 256)),
    "ivf-pq": tuple(SearchParams(nprobe=nprobe) for nprobe in (8, 16, 32, DEFAULT_NPROBE, 128)),
}
"""The measured settings, from which the defaults were chosen."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: one query at a time on one thread, in CPU seconds, which exclude other load."""

    vectors: int
    kind: IndexKind
    params: str
    median_ms: float
    recall: float
    build_cpu_s: float
    bytes_per_vector: float


def main(
    sizes: Annotated[list[int] | None, typer.Option(help="Numbers of vectors; may be repeated.")] = None,
    dimensions: Annotated[int, typer.Option(help="D.")] = 384,
    threads: Annotated[int, typer.Option(help="Threads of building; searching has one.")] = 1,
    kinds: Annotated[list[str] | None, typer.Option(help="Kinds; default: all.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the results.")] = None,
) -> None:
    """Measures every kind at every size."""
    rows: list[Row] = []
    start = time.perf_counter()
    for count in sizes or [1000, 3000, 10_000, 30_000, 100_000]:
        vectors, queries = made_up(count, dimensions)
        exact = nearest(vectors, queries)
        for kind in KINDS:
            if not kinds or kind in kinds:
                for row in measure(vectors, queries, exact, kind, threads):
                    rows.append(row)
                    sys.stdout.write(
                        f"{row.vectors:>7} {row.kind:<8} {row.params:<16} {row.median_ms:8.3f} ms "
                        f"recall {row.recall:.3f} build {row.build_cpu_s:7.2f} CPU s {row.bytes_per_vector:5.0f} B\n"
                    )
                    sys.stdout.flush()
    results = {
        "machine": {**machine(), "faiss": faiss.__version__},
        "threads_build": threads,
        "seconds": round(time.perf_counter() - start, 1),
        "rows": [asdict(row) for row in rows],
    }
    if json_file:
        json_file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def made_up(count: int, dimensions: int, seed: int = 0) -> tuple[Vectors, Vectors]:
    """Synthetic documents and queries: float32 [count, D] and [QUERIES, D], L2-normalized."""
    generator = np.random.default_rng(seed)
    turn = generator.standard_normal((LATENT_DIMENSIONS, dimensions)).astype(np.float32)
    turn /= np.sqrt(np.float32(LATENT_DIMENSIONS))
    clusters = max(count // CLUSTER_SIZE, 1)
    centres = generator.standard_normal((clusters, LATENT_DIMENSIONS)).astype(np.float32)

    def around(members: NDArray[np.int64], noise: float) -> Vectors:
        shape = (len(members), LATENT_DIMENSIONS)
        latent = centres[members] + SPREAD * generator.standard_normal(shape).astype(np.float32)
        found: Vectors = latent @ turn
        found += noise * generator.standard_normal(found.shape, np.float32)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found

    return (
        around(generator.integers(clusters, size=count), NOISE),
        around(generator.integers(clusters, size=QUERIES), QUERY_NOISE),
    )


def nearest(vectors: Vectors, queries: Vectors) -> NDArray[np.int64]:
    """Rows of the exact top hits, int64 [QUERIES, DEPTH]."""
    return np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :DEPTH]


def measure(
    vectors: Vectors, queries: Vectors, exact: NDArray[np.int64], kind: IndexKind, threads: int
) -> list[Row]:
    """Builds one kind, opens it from its file as a service does, and searches with each setting."""
    set_threads(threads)
    start = time.process_time()
    built = build_dense(vectors, kind)
    build_cpu_s = time.process_time() - start
    set_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.faiss"
        built.save(path)
        size = path.stat().st_size / len(vectors)
        index = DenseIndex.load(path)
        return [
            Row(
                len(vectors),
                kind,
                describe(params),
                *timed(index, queries, exact, params),
                round(build_cpu_s, 2),
                round(size),
            )
            for params in SWEEP[kind]
        ]


def timed(
    index: DenseIndex, queries: Vectors, exact: NDArray[np.int64], params: SearchParams
) -> tuple[float, float]:
    """Median milliseconds per query, and recall@10."""
    index.search(queries[:20], DEPTH, params)  # warm-up
    times, hits = [], 0
    for row in range(len(queries)):
        query = queries[row : row + 1]
        start = time.perf_counter()
        found = index.search(query, DEPTH, params)[1]
        times.append((time.perf_counter() - start) * 1e3)
        hits += len(np.intersect1d(found[0], exact[row]))
    return round(statistics.median(times), 4), round(hits / exact.size, 4)


def describe(params: SearchParams) -> str:
    """Parameters as text: `ef_search=64`."""
    given = {name: value for name, value in asdict(params).items() if value}
    return ", ".join(f"{name}={value}" for name, value in given.items()) or "-"


if __name__ == "__main__":
    typer.run(main)
