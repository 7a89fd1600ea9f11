"""Measures search over a million synthetic vectors in each kind of index: time, recall, memory, bytes and build time.

python -m benchmarks.scale --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale

Vectors, index files and results stay in the work directory and are not made again, so the same call resumes an
interrupted run. Every build and every search has a separate process (Linux).
"""

import json
import time
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from benchmarks.scale.kinds import measure
from benchmarks.scale.processes import alone, say
from benchmarks.scale.report import finished, tables
from benchmarks.scale.vectors import Shape, Wanted, prepare
from glow.index.ranking import KINDS


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
    """Generates the vectors, then builds, opens and searches each kind."""
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


if __name__ == "__main__":
    typer.run(main)
