"""Search at scale: a million vectors like real ones in each kind of index; time, recall, memory, bytes, build time.

python -m research.scale --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale

Vectors, index files and results stay in the work folder: what is made, built or measured already is not done again, so an
interrupted run goes on when it is called again. Every build and every search has a process of its own (Linux).
"""

import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, cast, get_args

import faiss
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.machine import machine
from glow.search import KINDS, DenseIndex, SearchParams, build_dense, set_threads
from glow.search.dense.build import (
    BLOCK_VECTORS,
    HNSW_EF_CONSTRUCTION,
    MAX_TRAIN_VECTORS,
    PQ_TRAIN_ROUNDS,
    PQ_TRAIN_VECTORS_PER_CODE,
)
from glow.search.dense.kinds import list_count
from research.scale.vectors import DEPTH, Made, Shape, Wanted, make, read_real

Vectors = NDArray[np.float32]
T = TypeVar("T")
Record = dict[str, Any]
EF_SEARCH = (32, 64, 96, 128, 192, 256, 384, 512)
NPROBE = (16, 32, 64, 128, 256, 512)
CANDIDATE_NPROBE = (64, 128, 256)
RESCORED = (5, 10, 20)
OPQ_ROUNDS = 15
OPQ_TRAIN_VECTORS = 16_384
SHORT_WARM_UP = 20
SAMPLE_S = 0.05
MIB = 2**20
PR_SET_PDEATHSIG = 1  # of Linux's prctl
BAR_RECALL = 0.95
BAR_MS = 1.5


class Searchable(Protocol):
    """A kind of index, or a candidate for one."""

    def search(self, vectors: Vectors, k: int, params: Any) -> tuple[Any, NDArray[np.int64]]:
        """As `DenseIndex.search`."""


class Candidate:
    """An index of FAISS's factory that GLOW does not offer, to compare with.

    Args:
        path: file that `build_candidate` wrote.
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


def main(
    work: Annotated[Path, typer.Option(help="Folder for vectors, index files and results; made if missing.")],
    index_root: Annotated[list[Path], typer.Option(help="Index of real documents; may be repeated.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder with its queries; one for each index root.")],
    count: Annotated[int, typer.Option(min=1, help="Vectors to make.")] = 1_000_000,
    kind: Annotated[list[str] | None, typer.Option(help="Kinds; may be repeated. Default: all.")] = None,
    candidate: Annotated[
        list[str] | None, typer.Option(help="FAISS factory string, {lists} filled in; may be repeated.")
    ] = None,
    noise: Annotated[
        str, typer.Option(help="isotropic, or covariance: shaped as the real documents.")
    ] = "isotropic",
    aim: Annotated[float, typer.Option(help="Wanted ratio of distances / that of the real set.")] = 1.0,
    queries: Annotated[int, typer.Option(help="Timed queries.")] = 1000,
    threads: Annotated[int, typer.Option(help="Threads of making and building; searching has one.")] = 1,
    seed: Annotated[int, typer.Option(help="Of samples and noise.")] = 0,
    markdown: Annotated[Path | None, typer.Option(help="Where to write the tables.")] = None,
) -> None:
    """Makes the vectors, then builds, opens and searches each kind."""
    work.mkdir(parents=True, exist_ok=True)
    if unknown := sorted(set(kind or ()) - set(KINDS)):
        raise typer.BadParameter(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    if noise not in get_args(Shape):
        raise typer.BadParameter(f"no noise {noise!r}; there are {', '.join(get_args(Shape))}")
    if len(index_root) != len(data):
        raise typer.BadParameter(
            f"{len(index_root)} index roots and {len(data)} data folders; each root needs one"
        )
    wanted = Wanted(count, cast(Shape, noise), aim, seed)
    start = time.perf_counter()
    made = alone(prepare, index_root, data, queries, wanted, work, threads)
    say(f"vectors after {time.perf_counter() - start:.0f} s; noise {made.noise:.3f}, ratio {made.made:.4f}")
    say(f"(10th neighbour's distance / mean distance), of the real set {made.real:.4f}")
    results = work / "results.jsonl"
    chosen = [*(kind or ([] if candidate else KINDS)), *(candidate or ())]
    for name in chosen:
        if name not in {record["kind"] for record in finished(results, made.key)}:
            record = measure(name, made, work, threads)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    report = tables(made, finished(results, made.key))
    say(report)
    if markdown:
        markdown.write_text(report, encoding="utf-8")


def prepare(
    roots: list[Path], data: list[Path], queries: int, wanted: Wanted, work: Path, threads: int
) -> Made:
    """Makes the vectors, in a process of its own."""
    set_threads(threads)
    return make(read_real(roots, data, queries, queries, wanted.seed), wanted, work, say)


def measure(name: str, made: Made, work: Path, threads: int) -> Record:
    """Builds one kind, or takes the file of an earlier build of it, and searches it."""
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
    """Builds and saves one index, as the builder does, in a process of its own, and notes what it took."""
    set_threads(threads)
    vectors = np.load(work / "vectors.npy", mmap_mode="r")
    partial = path.with_suffix(f".{os.getpid()}")  # an interrupted build leaves no file of the real name
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
    """Builds what a factory string says, trained by as many vectors as ours are."""
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
    """Gives a candidate the effort of building that our kinds take."""
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
        codes.pq.cp.max_points_per_centroid = PQ_TRAIN_VECTORS_PER_CODE
        codes.pq.cp.niter = PQ_TRAIN_ROUNDS
        # The factory asks for it; it takes minutes and serves a way of searching that is not used here.
        codes.do_polysemous_training = False


def search(name: str, work: Path, path: Path) -> Record:
    """Opens one index as the service does and searches it with each setting, in a process of its own."""
    set_threads(1)
    queries, others = np.load(work / "queries.npy"), np.load(work / "others.npy")
    exact = np.load(work / "exact.npy")
    with path.open("rb") as file:  # into the page cache, where a service that runs has it
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
        others = others[:SHORT_WARM_UP]  # the pages of the file are mapped by now
    return {
        "opened_s": round(opened_s, 3),
        "own_mib": round(status_bytes("RssAnon") / MIB),
        "mapped_mib": round(status_bytes("RssFile") / MIB),
        "search": rows,
    }


def settings(name: str) -> list[Any]:
    """What is measured of a kind."""
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
    """One query at a time: recall@10, milliseconds on the clock and of the CPU."""
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


class PeakMemory:
    """The most memory of its own that this process had meanwhile: not the pages of files that it maps."""

    def __enter__(self) -> "PeakMemory":
        self.own_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.own_bytes = max(self.own_bytes, status_bytes("RssAnon"))


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is given in kB, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a fresh process, whose memory is then its own."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=end_with, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments).result()


def end_with(parent: int) -> None:
    """Makes this process end when its parent does: one left behind would disturb the next run's measurements."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def finished(results: Path, key: str) -> list[Record]:
    """Records of the same vectors."""
    if not results.exists():
        return []
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record["key"] == key]


def tables(made: Made, records: list[Record]) -> str:
    """What was measured, as Markdown."""
    lines = [
        f"{made.count:,} vectors of {made.dimensions} dimensions by {made.model}, from {'; '.join(made.sources)}.",
        f"Noise ({made.shape}) of length {made.noise:.3f}; 10th neighbour's / mean distance {made.made:.4f}, "
        f"of the real set {made.real:.4f} ({100 * (made.made / made.real - 1):+.1f} %); local "
        f"intrinsic dimensions around queries {made.made_local:.0f}, of the real set {made.real_local:.0f}.",
        "",
        "| kind | build s | CPU s | threads | peak MiB | file MiB | bytes a vector | open s | served MiB own + mapped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        built = record["build"]
        lines.append(
            f"| `{record['kind']}` | {built['seconds']:,} | {built['cpu_s']:,} | {built['threads']} "
            f"| {built['peak_mib']:,} | {built['file_bytes'] / MIB:,.0f} | {built['bytes_per_vector']:,.0f} "
            f"| {record['opened_s']} | {record['own_mib']:,} + {record['mapped_mib']:,} |"
        )
    lines += [
        "",
        "| kind | setting | recall@10 | p50 ms | p99 ms | CPU p50 ms | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        for row in record["search"]:
            holds = row["recall"] >= BAR_RECALL and row["p50_ms"] <= BAR_MS
            lines.append(
                f"| `{record['kind']}` | `{row['setting']}` | {row['recall']:.4f} | {row['p50_ms']:.3f} "
                f"| {row['p99_ms']:.3f} | {row['cpu_p50_ms']:.3f} | {'holds' if holds else ''} |"
            )
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
