"""Measures recall and time of a version of synthetic vectors, with and without filters, against exact search.

python -m benchmarks.scale.filtered --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale/collection

The vectors are generated again block by block (see `benchmarks.scale.collection`), so exact search uses floats.
"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.scale.processes import say, status_bytes
from benchmarks.scale.vectors import DEPTH, Wanted, blocks, read_real
from glow.artifact import IndexRoot
from glow.index.columns.reader import Columns
from glow.index.ranking import RowMask, SearchParams
from glow.index.vectors.index import DenseIndex, set_threads

SHARES = {"all": 1_000, "50 %": 500, "10 %": 100, "1 %": 10, "0.1 %": 1}
"""Name -> limit: the filter allows documents with a smaller number; numbers are uniform in 0 to 999."""


def main(
    index_root: Annotated[list[Path], typer.Option(help="Index of real documents; may be repeated.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder of each.")],
    work: Annotated[Path, typer.Option(help="Folder of `benchmarks.scale.collection`.")],
    queries: Annotated[int, typer.Option(help="Timed queries.")] = 200,
    threads: Annotated[int, typer.Option(help="Threads of exact search; GLOW's has one.")] = 2,
) -> None:
    """Measures the live version of the index in the work directory."""
    root = IndexRoot(work / "index")
    folder, manifest = root.folder(root.current()), root.manifest(root.current())
    count = int(manifest.counts["documents"])
    columns = Columns.open(folder, count)
    numbers = columns.fields["number"].parts["number"].codes.astype(np.int64) - 1
    set_threads(threads)
    real = read_real(index_root, data, queries, queries, 0)
    wanted = Wanted(count, "isotropic", 1.0, 0)
    noise = float(json.loads((work / "noise.json").read_text()))
    exact = _exact(real.documents, real.queries, wanted, noise, numbers)
    set_threads(1)
    dense = DenseIndex.load(folder / "vectors.faiss")
    rows = [
        {
            "filter": name,
            **_timed(
                dense, real.queries, exact[name], RowMask(numbers < below) if below < 1_000 else None, params
            ),
        }
        for name, below in SHARES.items()
        for params in (SearchParams(), SearchParams(nprobe=128))
    ]
    for row in rows:
        say(json.dumps(row))
    report = {
        "machine": machine(),
        "kind": dense.kind,
        "count": count,
        "own_mib": status_bytes("RssAnon") >> 20,
        "rows": rows,
    }
    (work / "filtered.json").write_text(json.dumps(report, indent=1))


def _exact(
    documents: NDArray[np.float32],
    queries: NDArray[np.float32],
    wanted: Wanted,
    noise: float,
    numbers: NDArray[np.int64],
) -> dict[str, NDArray[np.int64]]:
    """The nearest rows for every filter, int64 [n, DEPTH]."""
    best = {name: np.full((len(queries), DEPTH), -2, np.float32) for name in SHARES}
    rows = {name: np.full((len(queries), DEPTH), -1, np.int64) for name in SHARES}
    start = 0
    for block in blocks(documents, wanted, noise):
        scores = queries @ block.T
        here = numbers[start : start + len(block)]
        for name, below in SHARES.items():
            places = np.flatnonzero(here < below)
            among = np.concatenate([best[name], scores[:, places]], axis=1)
            names = np.concatenate(
                [rows[name], np.broadcast_to(places + start, (len(queries), len(places)))], axis=1
            )
            top = np.argpartition(-among, DEPTH - 1, axis=1)[:, :DEPTH]
            best[name], rows[name] = np.take_along_axis(among, top, 1), np.take_along_axis(names, top, 1)
        start += len(block)
    return rows


def _timed(
    dense: DenseIndex,
    queries: NDArray[np.float32],
    exact: NDArray[np.int64],
    allowed: RowMask | None,
    params: SearchParams,
) -> dict[str, Any]:
    found, times = [], []
    for row in range(len(queries)):
        start = time.perf_counter()
        found.append(dense.search(queries[row : row + 1], DEPTH, params, allowed)[1][0])
        times.append((time.perf_counter() - start) * 1e3)
    shares = [len(np.intersect1d(a, b)) / DEPTH for a, b in zip(found, exact, strict=True)]
    return {
        "nprobe": params.nprobe or 64,
        "recall": round(float(np.mean(shares)), 4),
        "p50_ms": round(float(np.quantile(times, 0.5)), 2),
        "p99_ms": round(float(np.quantile(times, 0.99)), 2),
    }


if __name__ == "__main__":
    typer.run(main)
