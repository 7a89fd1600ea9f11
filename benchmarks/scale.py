"""Measures search over a million synthetic vectors in each kind of index: time, recall, memory, bytes and build time.

python -m benchmarks.scale --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale

Each vector is a real document vector plus noise, which makes search as hard as on the real set: the 10th neighbor of a real query is
as near, relative to the mean distance, as among the real documents. Vectors, index files and results stay in the work directory and
are not made again, so the same call resumes an interrupted run. Every build and every search has a separate process (Linux).

N   vectors         R   real document vectors    n   queries    D   dimensions
"""

import ctypes
import hashlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import faiss
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import machine, say, status_bytes
from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.index.ranking import KINDS, IndexKind, SearchParams
from glow.index.vectors.build import build_dense
from glow.index.vectors.component import DENSE_FILE
from glow.index.vectors.index import DenseIndex, set_threads
from glow.index.version import Index

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
DEPTH = 10
FORMAT = 2  # format of made.json; part of the key
NEIGHBOURS = 100
BLOCK_VECTORS = 16_384
BISECTION_QUERIES = 200
BISECTION_STEPS = 12
STRONGEST_NOISE = 2.0
CLOSE_ENOUGH = 0.005
ALLOWED = 0.10
SHORTEST = 1e-6


@dataclass(frozen=True, slots=True)
class Real:
    """The real vectors to start from."""

    documents: Vectors  # float32 [R, D], L2-normalized
    queries: Vectors  # float32 [n, D], L2-normalized, the timed queries
    others: Vectors  # float32 [m, D], further queries for warm-up
    sources: list[str]  # index versions and numbers of vectors, for the report
    model: str  # name and short hash of their model


@dataclass(frozen=True, slots=True)
class Wanted:
    """The vectors to generate."""

    count: int  # N
    aim: float  # target for the ratio of the generated set divided by that of the real set
    seed: int  # seed of the noise and of the samples of queries


@dataclass(frozen=True, slots=True)
class Near:
    """The neighbors of queries: exact rows, int64 [n, DEPTH], and the two figures of `Made`."""

    rows: Rows
    ratio: float
    local_dimensions: float


@dataclass(frozen=True, slots=True)
class Made:
    """The generation of the vectors, and their similarity to the real ones."""

    key: str  # key of all inputs that decide them
    count: int
    dimensions: int
    aim: float
    seed: int
    noise: float  # length of the noise relative to a document vector's length of 1
    real: float  # mean over queries of the 10th neighbor's distance / the mean distance, Euclidean
    made: float
    real_local: float  # local intrinsic dimensions: how fast the number of neighbors grows with distance
    made_local: float
    model: str
    sources: list[str]


def read_real(roots: Sequence[Path], data: Sequence[Path], queries: int, others: int, seed: int) -> Real:
    """Reads document vectors of indexes of one model, and encodes queries with their query towers."""
    documents, timed, warming, sources, models = [], [], [], [], set()
    for root, folder in zip(roots, data, strict=True):
        version = IndexRoot(root).folder(IndexRoot(root).current())
        index = Index.open(version)
        models.add(index.model)
        stored: Any = faiss.read_index(str(version / DENSE_FILE))
        documents.append(stored.reconstruct_n(0, stored.ntotal))
        texts = sorted({query.text for query in read_queries(folder / "queries.jsonl")})
        wanted, spare = -(-queries // len(roots)), -(-others // len(roots))
        if len(texts) < wanted + spare:
            raise ValueError(f"{folder} has {len(texts)} different queries, {wanted + spare} are needed")
        rows = np.random.default_rng(seed).choice(len(texts), wanted + spare, replace=False)
        found = index.encoder.encode([index.preprocessor.query(texts[row]) for row in rows])
        timed.append(found[:wanted])
        warming.append(found[wanted:])
        sources.append(f"{folder.name}: {stored.ntotal} documents, {len(texts)} different queries")
    if len(models) != 1:
        raise ValueError(f"the indexes are of several models, expected one: {', '.join(sorted(models))}")
    return Real(
        np.concatenate(documents),
        np.concatenate(timed)[:queries],
        np.concatenate(warming)[:others],
        sources,
        models.pop(),
    )


def make(real: Real, wanted: Wanted, folder: Path, say: Callable[[str], None]) -> Made:
    """Finds the noise, then writes vectors.npy, queries.npy, others.npy, exact.npy and made.json, unless they exist."""
    if wanted.count <= len(real.documents):
        raise ValueError(
            f"found {len(real.documents)} real documents, asked for {wanted.count} vectors: ask for more"
        )
    key = _key(real, wanted)
    file = folder / "made.json"
    if file.exists() and (old := json.loads(file.read_text(encoding="utf-8")))["key"] == key:
        return Made(**old)
    file.unlink(missing_ok=True)
    few = real.queries[:: max(len(real.queries) // BISECTION_QUERIES, 1)]
    target = wanted.aim * _nearest([real.documents], few).ratio

    def ratio_of(noise: float) -> float:
        found = _nearest(blocks(real.documents, wanted, noise), few).ratio
        say(f"noise {noise:.3f}: ratio {found:.4f}, wanted {target:.4f}")
        return found

    noise = _bisect(ratio_of, target)
    found, known = _write(real, wanted, noise, folder), _nearest([real.documents], real.queries)
    if abs(found.ratio / known.ratio - 1) > ALLOWED:
        raise ValueError(
            f"noise {noise:.3f} gives the ratio {found.ratio:.4f}; the real set has {known.ratio:.4f}"
        )
    for name, array in (("queries", real.queries), ("others", real.others), ("exact", found.rows)):
        np.save(folder / f"{name}.npy", array)
    made = Made(
        key=key,
        dimensions=real.documents.shape[1],
        noise=noise,
        real=known.ratio,
        made=found.ratio,
        real_local=known.local_dimensions,
        made_local=found.local_dimensions,
        model=real.model,
        sources=real.sources,
        **asdict(wanted),
    )
    file.write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
    return made


def prepare(
    roots: list[Path], data: list[Path], queries: int, wanted: Wanted, folder: Path, threads: int
) -> Made:
    """Runs `read_real` and `make` in a separate process."""
    set_threads(threads)
    return make(read_real(roots, data, queries, queries, wanted.seed), wanted, folder, say)


def _key(real: Real, wanted: Wanted) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, asdict(wanted)]).encode())
    for array in (real.documents, real.queries, real.others):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


def _bisect(ratio_of: Callable[[float], float], target: float) -> float:
    """Finds the noise whose ratio is the target; more noise makes distances more similar, so the ratio rises."""
    low, high = 0.0, STRONGEST_NOISE
    for _ in range(BISECTION_STEPS):
        noise = (low + high) / 2
        found = ratio_of(noise)
        if abs(found / target - 1) < CLOSE_ENOUGH:
            break
        low, high = (noise, high) if found < target else (low, noise)
    return noise


def blocks(documents: Vectors, wanted: Wanted, noise: float) -> Iterator[Vectors]:
    """Blocks of the N vectors, float32 [block, D], deterministic; row i is from document i modulo R."""
    dimensions = documents.shape[1]
    for start in range(0, wanted.count, BLOCK_VECTORS):
        rows = np.arange(start, min(start + BLOCK_VECTORS, wanted.count))
        generator = np.random.default_rng((wanted.seed, start))
        found: Vectors = generator.standard_normal((len(rows), dimensions), np.float32)
        found *= np.float32(noise / dimensions**0.5)
        found += documents[rows % len(documents)]
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        yield found


def _nearest(blocks: Iterable[Vectors], queries: Vectors) -> Near:
    """Compares every query with every vector."""
    best = np.full((len(queries), NEIGHBOURS), -1, np.float32)
    rows = np.full((len(queries), NEIGHBOURS), -1, np.int64)
    total, start = np.zeros(len(queries)), 0
    for block in blocks:
        scores = queries @ block.T
        depth = min(NEIGHBOURS, len(block))
        top = np.argpartition(scores, -depth, axis=1)[:, -depth:]
        best = np.concatenate([best, np.take_along_axis(scores, top, 1)], axis=1)
        rows = np.concatenate([rows, top + start], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :NEIGHBOURS]
        best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        total += _distance(scores).sum(axis=1, dtype=np.float64)
        start += len(block)
    ratio = np.mean(_distance(best[:, DEPTH - 1]) / (total / start))
    return Near(rows[:, :DEPTH], float(ratio), _local_dimensions(_distance(best)))


def _local_dimensions(distances: Vectors) -> float:
    """Median over queries of Levina and Bickel's estimate from the nearest distances, [n, NEIGHBOURS] ascending.

    NIPS 2004, equation 8: https://papers.nips.cc/paper/2004/hash/74934548253bcab8490ebd74afed7031-Abstract.html
    """
    shares = np.maximum(distances[:, :-1], SHORTEST) / distances[:, -1:]
    return float(np.median(-1 / np.mean(np.log(shares), axis=1)))


def _distance(cosine: Vectors) -> Vectors:
    """Euclidean distance of vectors of length 1."""
    distance: Vectors = np.sqrt(np.maximum(2 - 2 * cosine, 0))
    return distance


def _write(real: Real, wanted: Wanted, noise: float, folder: Path) -> Near:
    """Writes vectors.npy block by block; returns the result of `_nearest`."""
    size = (wanted.count, real.documents.shape[1])
    file = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, size)

    def written() -> Iterator[Vectors]:
        start = 0
        for block in blocks(real.documents, wanted, noise):
            file[start : start + len(block)] = block
            start += len(block)
            yield block

    found = _nearest(written(), real.queries)
    file.flush()
    return found


T = TypeVar("T")
Record = dict[str, Any]
MIB = 2**20
SAMPLE_S = 0.05
PR_SET_PDEATHSIG = 1  # of Linux's prctl


class PeakMemory:
    """Peak private memory of this process in the block, without mapped pages of files."""

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


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a new process with its own memory."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=end_with, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments).result()


def end_with(parent: int) -> None:
    """Makes this process end with its parent, because a remaining one would disturb later measurements."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


EF_SEARCH = (32, 64, 96, 128, 192, 256, 384, 512)
NPROBE = (16, 32, 64, 128, 256, 512)
SHORT_WARM_UP = 20


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
        build_dense(vectors, cast(IndexKind, name)).save(partial)
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


def search(name: str, work: Path, path: Path) -> Record:
    """Opens one index as a service does, and searches it with each setting, in a separate process."""
    set_threads(1)
    queries, others = np.load(work / "queries.npy"), np.load(work / "others.npy")
    exact = np.load(work / "exact.npy")
    with path.open("rb") as file:  # into the page cache, as in a running service
        while file.read(MIB):
            pass
    start = time.perf_counter()
    index = DenseIndex.load(path)
    opened_s = time.perf_counter() - start
    if name == "flat":
        others = others[:SHORT_WARM_UP]
    rows: list[Record] = []
    for params in settings(name):
        rows.append({"setting": _shown(params), **timed(index, queries, others, exact, params)})
        say(f"{name} {rows[-1]}")
        others = others[:SHORT_WARM_UP]  # by now the pages of the file are mapped
    return {
        "opened_s": round(opened_s, 3),
        "own_mib": round(status_bytes("RssAnon") / MIB),
        "mapped_mib": round(status_bytes("RssFile") / MIB),
        "search": rows,
    }


def settings(name: str) -> list[SearchParams]:
    """The settings to measure for a kind."""
    if name == "flat":
        return [SearchParams()]
    if name == "hnsw":
        return [SearchParams(ef_search=ef) for ef in EF_SEARCH]
    return [SearchParams(nprobe=nprobe) for nprobe in NPROBE]


def _shown(params: SearchParams) -> str:
    return ", ".join(f"{name}={value}" for name, value in asdict(params).items() if value) or "-"


def timed(
    index: DenseIndex, queries: Vectors, others: Vectors, exact: NDArray[np.int64], params: SearchParams
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


BAR_RECALL = 0.95
BAR_MS = 1.5


def finished(results: Path, key: str) -> list[Record]:
    """The stored records of the same vectors."""
    if not results.exists():
        return []
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record["key"] == key]


def tables(made: Made, records: list[Record]) -> str:
    """The measurements as Markdown."""
    lines = [
        f"{made.count:,} vectors of {made.dimensions} dimensions by {made.model}, from {'; '.join(made.sources)}.",
        f"Noise of length {made.noise:.3f}; 10th neighbour's / mean distance {made.made:.4f}, "
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


def main(
    work: Annotated[Path, typer.Option(help="Folder for vectors, index files and results; made if missing.")],
    index_root: Annotated[list[Path], typer.Option(help="Index of real documents; may be repeated.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder with its queries; one for each index root.")],
    count: Annotated[int, typer.Option(min=1, help="Vectors to make.")] = 1_000_000,
    kind: Annotated[list[str] | None, typer.Option(help="Kinds; may be repeated. Default: all.")] = None,
    aim: Annotated[float, typer.Option(help="Wanted ratio of distances / that of the real set.")] = 1.0,
    queries: Annotated[int, typer.Option(help="Timed queries.")] = 1000,
    threads: Annotated[int, typer.Option(help="Threads of making and building; searching has one.")] = 1,
    seed: Annotated[int, typer.Option(help="Of samples and noise.")] = 0,
    markdown: Annotated[Path | None, typer.Option(help="Where to write the tables.")] = None,
) -> None:
    """Generates the vectors, then builds, opens and searches each kind."""
    work.mkdir(parents=True, exist_ok=True)
    if unknown := sorted(set(kind or ()) - set(KINDS)):
        raise typer.BadParameter(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    if len(index_root) != len(data):
        raise typer.BadParameter(
            f"{len(index_root)} index roots and {len(data)} data folders; each root needs one"
        )
    wanted = Wanted(count, aim, seed)
    start = time.perf_counter()
    made = alone(prepare, index_root, data, queries, wanted, work, threads)
    say(f"vectors after {time.perf_counter() - start:.0f} s; noise {made.noise:.3f}, ratio {made.made:.4f}")
    say(f"(10th neighbour's distance / mean distance), of the real set {made.real:.4f}")
    results = work / "results.jsonl"
    for name in kind or KINDS:
        if name not in {record["kind"] for record in finished(results, made.key)}:
            record = measure(name, made, work, threads)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    report = tables(made, finished(results, made.key))
    say(report)
    if markdown:
        markdown.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
