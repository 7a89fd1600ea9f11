"""Generates a large set of vectors from real ones: each is a real document vector plus noise.

The noise makes search as hard as on the real set: the 10th neighbor of a real query is as near, relative to the mean
distance, as among the real documents. Blocks are generated from a seed on demand, so a million vectors need the memory
of one block.

N   vectors         R   real document vectors    n   queries    D   dimensions
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.processes import say
from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.index.vectors.component import DENSE_FILE
from glow.index.vectors.index import set_threads
from glow.index.version import Index

__all__ = [
    "BLOCK_VECTORS",
    "DEPTH",
    "Made",
    "Real",
    "Shape",
    "Wanted",
    "blocks",
    "make",
    "prepare",
    "read_real",
]

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Shape = Literal["isotropic", "covariance"]
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
    """The real vectors to start from.

    Attributes:
        documents: float32 [R, D], L2-normalized.
        queries: float32 [n, D], L2-normalized, the timed queries.
        others: float32 [m, D], further queries for warm-up.
        sources: index versions and numbers of vectors, for the report.
        model: name and short hash of their model.
    """

    documents: Vectors
    queries: Vectors
    others: Vectors
    sources: list[str]
    model: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The vectors to generate.

    Attributes:
        count: N.
        shape: isotropic noise, or noise with the covariance of the real documents.
        aim: target for the ratio of the generated set divided by that of the real set.
        seed: seed of the noise and of the samples of queries.
    """

    count: int
    shape: Shape
    aim: float
    seed: int


@dataclass(frozen=True, slots=True)
class Near:
    """The neighbors of queries: exact rows, int64 [n, DEPTH], and the two figures of `Made`."""

    rows: Rows
    ratio: float
    local_dimensions: float


@dataclass(frozen=True, slots=True)
class Made:
    """The generation of the vectors, and their similarity to the real ones.

    Attributes:
        key: key of all inputs that decide them.
        noise: length of the noise relative to a document vector's length of 1.
        real, made: mean over queries of the 10th neighbor's distance / the mean distance, Euclidean.
        real_local, made_local: local intrinsic dimensions: how fast the number of neighbors grows with distance.
    """

    key: str
    count: int
    dimensions: int
    shape: Shape
    aim: float
    seed: int
    noise: float
    real: float
    made: float
    real_local: float
    made_local: float
    model: str
    sources: list[str]


def read_real(roots: Sequence[Path], data: Sequence[Path], queries: int, others: int, seed: int) -> Real:
    """Reads document vectors of indexes of one model, and encodes queries with their query towers.

    Args:
        roots: index roots; the live version is read.
        data: a BEIR data directory for each root; its queries.jsonl is sampled.
        queries: n, equally many from each directory.
        others: m.
        seed: seed of the samples.

    Raises:
        ValueError: if the numbers of directories and roots or the models differ, or there are too few queries.
    """
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
    """Finds the noise, then writes vectors.npy, queries.npy, others.npy, exact.npy and made.json, unless they exist.

    Args:
        real: the source.
        wanted: the vectors to generate.
        folder: existing directory for the files.
        say: called with progress messages.

    Raises:
        ValueError: if not more vectors than real documents are wanted, or no noise gives a ratio within 10 % of the
            real set's.
    """
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


def blocks(documents: Vectors, wanted: Wanted, noise: float, first: int = 0) -> Iterator[Vectors]:
    """Blocks of the N vectors from a start on, float32 [block, D], deterministic; row i is from document i modulo R."""
    dimensions = documents.shape[1]
    turn = _covariance_root(documents) if wanted.shape == "covariance" else None
    for start in range(first, wanted.count, BLOCK_VECTORS):
        rows = np.arange(start, min(start + BLOCK_VECTORS, wanted.count))
        generator = np.random.default_rng((wanted.seed, start))
        found: Vectors = generator.standard_normal((len(rows), dimensions), np.float32)
        found = found / np.sqrt(np.float32(dimensions)) if turn is None else found @ turn
        found *= np.float32(noise)
        found += documents[rows % len(documents)]
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        yield found


def _covariance_root(documents: Vectors) -> Vectors:
    """Matrix, float32 [D, D], that gives normal noise the documents' covariance and an expected squared length of 1."""
    values, directions = np.linalg.eigh(np.cov(documents.T))
    spread = np.sqrt(np.maximum(values, 0) / values.sum())
    root: Vectors = (directions * spread).T.astype(np.float32)
    return root


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
