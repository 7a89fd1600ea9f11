"""One kind of index, or a candidate: built like in a build, opened like in a service, and searched."""

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.scale.processes import MIB, PeakMemory, alone, say, status_bytes
from benchmarks.scale.report import Record
from benchmarks.scale.vectors import DEPTH, Made
from glow.index.ranking import KINDS, SearchParams, list_count
from glow.index.vectors.build import BLOCK_VECTORS, HNSW_EF_CONSTRUCTION, MAX_TRAIN_VECTORS, build_dense
from glow.index.vectors.index import DenseIndex, set_threads

__all__ = ["measure"]

Vectors = NDArray[np.float32]
EF_SEARCH = (32, 64, 96, 128, 192, 256, 384, 512)
NPROBE = (16, 32, 64, 128, 256, 512)
CANDIDATE_NPROBE = (64, 128, 256)
RESCORED = (5, 10, 20)
OPQ_ROUNDS = 15
PQ_TRAIN_VECTORS_PER_CODE, PQ_TRAIN_ROUNDS = 64, 15
OPQ_TRAIN_VECTORS = 16_384
SHORT_WARM_UP = 20


class Searchable(Protocol):
    """A kind of index, or a candidate."""

    def search(self, vectors: Vectors, k: int, params: Any) -> tuple[Any, NDArray[np.int64]]:
        """As `DenseIndex.search`."""


class Candidate:
    """An index of the FAISS factory that GLOW does not offer, for comparison.

    Args:
        path: a file of `build_candidate`.
    """

    def __init__(self, path: Path) -> None:
        self._index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        self._params: Record = {}

    def search(self, vectors: Vectors, k: int, params: Record) -> tuple[Any, NDArray[np.int64]]:
        """As `DenseIndex.search`; params are FAISS's names and values."""
        if params is not self._params:
            self._params = params
            for name, value in params.items():
                faiss.ParameterSpace().set_index_parameter(self._index, name, value)
        found: tuple[Any, NDArray[np.int64]] = self._index.search(vectors, k)
        return found


def measure(name: str, made: Made, work: Path, threads: int) -> Record:
    """Builds one kind, or uses the file of an earlier build, and searches it."""
    path = work / f"{made.key}-{re.sub(r'[^A-Za-z0-9-]+', '_', name)}.faiss"
    note = path.with_suffix(".json")
    if not note.exists():
        say(f"{name}: building")
        alone(build, name, work, path, note, threads)
    say(f"{name}: searching")
    return {
        "key": made.key,
        "kind": name,
        "made": asdict(made),
        "machine": {**machine(), "faiss": faiss.__version__},
        "load": [round(load, 2) for load in os.getloadavg()],
        "build": json.loads(note.read_text(encoding="utf-8")),
        **alone(search, name, work, path),
    }


def build(name: str, work: Path, path: Path, note: Path, threads: int) -> None:
    """Builds and saves one index like in a build, in a separate process, and records time and memory."""
    set_threads(threads)
    vectors = np.load(work / "vectors.npy", mmap_mode="r")
    partial = path.with_suffix(f".{os.getpid()}")  # an interrupted build leaves no file under the real name
    wall, cpu = time.perf_counter(), time.process_time()
    with PeakMemory() as peak:
        if name in KINDS:
            build_dense(vectors, name).save(partial)
        else:
            build_candidate(vectors, name, partial)
    record = {
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "threads": threads,
        "peak_mib": round(peak.own_bytes / MIB),
        "peak_rss_mib": round(status_bytes("VmHWM") / MIB),
        "file_bytes": partial.stat().st_size,
        "bytes_per_vector": round(partial.stat().st_size / len(vectors), 1),
    }
    partial.rename(path)
    note.write_text(json.dumps(record), encoding="utf-8")


def build_candidate(vectors: Vectors, factory: str, path: Path) -> None:
    """Builds the index of a factory string, trained with the same number of vectors as GLOW's kinds."""
    count, dimensions = vectors.shape
    text = factory.format(lists=list_count(count))
    index: Any = faiss.index_factory(dimensions, text, faiss.METRIC_INNER_PRODUCT)
    rows = np.random.default_rng(0).choice(count, min(count, MAX_TRAIN_VECTORS), replace=False)
    tune(index)
    index.train(np.ascontiguousarray(vectors[np.sort(rows)]))
    for start in range(0, count, BLOCK_VECTORS):
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK_VECTORS]))
    faiss.write_index(index, str(path))


def tune(index: Any) -> None:
    """Sets a candidate's build effort to that of GLOW's kinds."""
    inner: Any = index
    if isinstance(inner, faiss.IndexPreTransform):
        chain: Any = inner.chain
        rotation: Any = faiss.downcast_VectorTransform(chain.at(0))
        rotation.niter, rotation.max_train_points = OPQ_ROUNDS, OPQ_TRAIN_VECTORS
        inner = faiss.downcast_index(inner.index)
    if isinstance(inner, faiss.IndexRefine):
        inner = faiss.downcast_index(inner.base_index)
    if isinstance(inner, faiss.IndexHNSW):
        inner.hnsw.efConstruction = HNSW_EF_CONSTRUCTION
    if isinstance(inner, faiss.IndexIVFPQ):
        codes: Any = inner
        # FAISS's defaults of 256 and 25 take seven times as long with hardly more recall.
        codes.pq.cp.max_points_per_centroid, codes.pq.cp.niter = PQ_TRAIN_VECTORS_PER_CODE, PQ_TRAIN_ROUNDS
        # The factory enables it; it takes minutes and serves a search method that is not used here.
        codes.do_polysemous_training = False


def search(name: str, work: Path, path: Path) -> Record:
    """Opens one index as a service does, and searches it with each setting, in a separate process."""
    set_threads(1)
    queries, others = np.load(work / "queries.npy"), np.load(work / "others.npy")
    exact = np.load(work / "exact.npy")
    with path.open("rb") as file:  # into the page cache, as in a running service
        while file.read(MIB):
            pass
    start = time.perf_counter()
    index: Searchable = DenseIndex.load(path) if name in KINDS else Candidate(path)
    opened_s = time.perf_counter() - start
    if name == "flat":
        others = others[:SHORT_WARM_UP]
    rows: list[Record] = []
    for params in settings(name):
        rows.append({"setting": describe(params), **timed(index, queries, others, exact, params)})
        say(f"{name} {rows[-1]}")
        others = others[:SHORT_WARM_UP]  # by now the pages of the file are mapped
    return {
        "opened_s": round(opened_s, 3),
        "own_mib": round(status_bytes("RssAnon") / MIB),
        "mapped_mib": round(status_bytes("RssFile") / MIB),
        "search": rows,
    }


def settings(name: str) -> list[Any]:
    """The settings to measure for a kind."""
    if name == "flat":
        return [SearchParams()]
    if name == "hnsw":
        return [SearchParams(ef_search=ef) for ef in EF_SEARCH]
    if name in KINDS:
        return [SearchParams(nprobe=nprobe) for nprobe in NPROBE]
    if "IVF" not in name:
        return [{"efSearch": ef} for ef in EF_SEARCH] if "HNSW" in name else [{}]
    rescored = RESCORED if "Refine" in name else (0,)
    return [
        {"nprobe": nprobe, **({"k_factor_rf": factor} if factor else {})}
        for nprobe in CANDIDATE_NPROBE
        for factor in rescored
    ]


def describe(params: Any) -> str:
    """Parameters as text: `ef_search=64`."""
    given = asdict(params) if isinstance(params, SearchParams) else params
    return ", ".join(f"{name}={value}" for name, value in given.items() if value) or "-"


def timed(
    index: Searchable, queries: Vectors, others: Vectors, exact: NDArray[np.int64], params: Any
) -> Record:
    """Searches one query at a time: recall@10, wall and CPU milliseconds."""
    for row in range(len(others)):
        index.search(others[row : row + 1], DEPTH, params)
    walls, cpus, hits = [], [], 0
    for row in range(len(queries)):
        query = queries[row : row + 1]
        cpu, wall = time.thread_time(), time.perf_counter()
        found = index.search(query, DEPTH, params)[1]
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.thread_time() - cpu) * 1e3)
        hits += len(np.intersect1d(found[0], exact[row]))
    return {
        "recall": round(hits / exact.size, 4),
        "p50_ms": round(float(np.quantile(walls, 0.5)), 3),
        "p99_ms": round(float(np.quantile(walls, 0.99)), 3),
        "cpu_p50_ms": round(float(np.quantile(cpus, 0.5)), 3),
    }
