"""Compares the service over HTTP with its limit: queries per second at 8 clients against preprocess + encode + search.

python -m benchmarks.serving.limit --index-root INDEX_ROOT --data $DATA/tldr [--workers "1 2"]

Both run on the same cores; wrk shares them with the service, but nothing with the loop. A profile of the best setting
shows the rest. It needs py-spy, which slows the service a little, so it has a separate run.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import emit, table, verdict
from benchmarks.serving.generators import run_wrk
from benchmarks.serving.inprocess import best_loop
from benchmarks.serving.profiling import Profile, Sampler
from benchmarks.serving.servers import our_service, running
from benchmarks.serving.workload import query_texts, search_request, write_requests

BAR = 0.6
CLIENTS = 8
Row = dict[str, Any]


def main(
    index_root: Annotated[Path, typer.Option(help="Index root to serve.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked.")],
    workers: Annotated[str, typer.Option(help="Worker processes to try, separated by blanks.")] = "1 2",
    seconds: Annotated[float, typer.Option(help="Of each measurement.")] = 10,
    warm_up: Annotated[float, typer.Option(help="Seconds before it.")] = 3,
    candidates: Annotated[int, typer.Option(help="Of each search of the loop; the service's default.")] = 100,
    cores: Annotated[str, typer.Option(help="Cores of all, separated by commas.")] = "0,1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "",
    profile: Annotated[bool, typer.Option(help="Sample the best setting with py-spy.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Runs the loop in both forms, then the service with each number of workers."""
    texts = query_texts(data)
    best, loops = best_loop(index_root, texts, [int(core) for core in cores.split(",")], seconds, candidates)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = []
        for number in map(int, workers.split()):
            settings = ["--cache-entries", "0", "--workers", str(number), *flags.split()]
            rows.append(
                _serve(index_root, texts, settings, folder, (seconds, warm_up), cores) | {"workers": number}
            )
        top = max(rows, key=lambda row: row["per_second"])
        settings = ["--cache-entries", "0", "--workers", str(top["workers"]), *flags.split()]
        shares = _profile(index_root, settings, folder, seconds, cores) if profile else {}
    ratio = round(top["per_second"] / best.per_second, 3)
    report = {
        "loops": [asdict(loop) for loop in loops],
        "http": rows,
        "profile": shares,
        "verdicts": [verdict(f"HTTP at {CLIENTS} clients >= {BAR} of the loop", ratio, ratio >= BAR)],
    }
    emit(report, _markdown(report, best.per_second), json_file, markdown_file)


def _serve(
    root: Path,
    texts: Sequence[str],
    settings: Sequence[str],
    folder: Path,
    times: tuple[float, float],
    cores: str,
) -> Row:
    """Queries per second of one setting, and the CPU time of each side per query."""
    seconds, warm_up = times
    requests = write_requests(folder / "requests.txt", map(search_request, texts))
    with running(our_service(root, *settings), folder, cores) as server:
        run_wrk(server.url, requests, CLIENTS, warm_up, cores)
        before = server.cpu_s()
        closed = run_wrk(server.url, requests, CLIENTS, seconds, cores)
        server_ms = 1e3 * (server.cpu_s() - before) / max(closed.requests, 1)
    return {
        "per_second": round(closed.per_second, 1),
        "p50_ms": closed.p50_ms,
        "p99_ms": closed.p99_ms,
        "errors": closed.errors,
        "server_cpu_ms": round(server_ms, 3),
        "wrk_cpu_ms": round(1e3 * closed.generator_cpu_s / max(closed.requests, 1), 3),
    }


def _profile(root: Path, settings: Sequence[str], folder: Path, seconds: float, cores: str) -> Profile:
    """Samples the service under the same load."""
    requests = folder / "requests.txt"
    with running(our_service(root, *settings), folder, cores) as server:
        run_wrk(server.url, requests, CLIENTS, 1, cores)
        sampler = Sampler(server.pid, seconds, folder / "stacks.txt")
        run_wrk(server.url, requests, CLIENTS, seconds + 1, cores)
        return sampler.result()


def _markdown(report: dict[str, Any], limit: float) -> str:
    head = "setting|queries/s|of the limit|p50 ms|p99 ms|errors|server CPU ms/query|wrk CPU ms/query"
    loops = [
        (
            f"loop, {loop['processes']} processes x {loop['threads']} threads",
            *(loop["per_second"], loop["per_second"] / limit, None, None, None, loop["cpu_ms"], None),
        )
        for loop in report["loops"]
    ]
    columns = ("p50_ms", "p99_ms", "errors", "server_cpu_ms", "wrk_cpu_ms")
    served = [
        [f"HTTP, {row['workers']} workers", row["per_second"], row["per_second"] / limit]
        + [row[column] for column in columns]
        for row in report["http"]
    ]
    shares = [[part, f"{share:.1%}"] for part, share in report["profile"].items() if share >= 0.005]
    text = table(head.split("|"), [*loops, *served])
    return f"{text}\n\n{table(['part', 'share of samples'], shares)}" if shares else text


if __name__ == "__main__":
    typer.run(main)
