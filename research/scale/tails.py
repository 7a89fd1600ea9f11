"""What scatter and gather over shards does to tails: a small simulation from measured times.

python -m research.scale.tails --times FILE --shards 4 --shards 16 --replicas 2

A search asks every shard and waits for the slowest (Dean and Barroso, 2013, "The tail at scale"). Every shard has replicas with a
queue each; who asks takes one at random, and where hedging is on, asks another when the first has not answered after a share of
all answers had (their 95th percentile); the answer that comes first counts, and the other is taken out of its queue if it has not
begun. Service times are drawn from the measured ones; arrivals are Poisson's. What is not simulated: the network, failures, and
that a shard of a part of the documents is faster than one of all.
"""

import heapq
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

__all__ = ["simulate"]

HEDGED_FROM = 0.95


def simulate(
    times_ms: NDArray[np.float64],
    shards: int,
    replicas: int,
    load: float,
    *,
    hedged: bool,
    searches: int = 20_000,
    seed: int = 0,
) -> dict[str, float]:
    """Answer times of searches over shards.

    Args:
        times_ms: measured times of one shard alone, float64 [m].
        shards: asked by every search, all of them.
        replicas: of each shard, >= 1; with one, hedging does nothing.
        load: share of a replica's time that is spent on first requests, in (0, 1).
        hedged: whether late requests are sent again.
        searches, seed: how many, and of what is drawn.

    Returns:
        p50, p95, p99 and p999 of a search, and `extra`, how many more requests hedging made, as a share.
    """
    random = np.random.default_rng(seed)
    rate = load * replicas / float(times_ms.mean())  # searches a millisecond
    arrivals = np.cumsum(random.exponential(1 / rate, searches))
    wait = float(np.quantile(times_ms, HEDGED_FROM))
    slowest = np.zeros(searches)
    extra = 0
    for _ in range(shards):
        ends, sent = _one_shard(
            times_ms, arrivals, replicas, wait if hedged and replicas > 1 else None, random
        )
        slowest = np.maximum(slowest, ends - arrivals)
        extra += sent
    names = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    found = {name: round(float(np.quantile(slowest, share)), 3) for name, share in names.items()}
    return {**found, "extra": round(extra / (searches * shards), 4)}


def _one_shard(
    times_ms: NDArray[np.float64],
    arrivals: NDArray[np.float64],
    replicas: int,
    wait: float | None,
    random: np.random.Generator,
) -> tuple[NDArray[np.float64], int]:
    """When each search has its answer of a shard, and how many requests were sent again.

    Requests come to a replica in the order of their time, so the end of its queue is all that must be known of it.
    """
    free = np.zeros(replicas)
    first = random.integers(0, replicas, len(arrivals))
    taken = random.choice(times_ms, (2, len(arrivals)))
    ends = np.full(len(arrivals), np.inf)
    events = [(float(moment), number, False) for number, moment in enumerate(arrivals)]
    heapq.heapify(events)
    sent = 0
    while events:
        moment, number, again = heapq.heappop(events)
        if again:
            if ends[number] <= moment:
                continue
            sent += 1
            replica = (int(first[number]) + 1 + int(random.integers(0, replicas - 1))) % replicas
        else:
            replica = int(first[number])
            if wait is not None:
                heapq.heappush(events, (moment + wait, number, True))
        begin = max(moment, free[replica])
        if again and begin >= ends[number]:
            continue  # answered before it would begin
        free[replica] = begin + taken[int(again), number]
        ends[number] = min(ends[number], free[replica])
    return ends, sent


def main(
    times: Annotated[Path, typer.Option(help="JSON list of measured milliseconds of one shard alone.")],
    shards: Annotated[list[int], typer.Option(help="May be repeated.")],
    replicas: Annotated[list[int], typer.Option(help="May be repeated.")],
    load: Annotated[list[float], typer.Option(help="Share of a replica's time in use; may be repeated.")],
    searches: Annotated[int, typer.Option(help="For each row.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
) -> None:
    """Prints a table in Markdown."""
    measured = np.array(json.loads(times.read_text(encoding="utf-8")), np.float64)
    typer.echo("| shards | replicas | load | p50 | p99 | p99.9 | hedged p50 | p99 | p99.9 | more requests |")
    typer.echo("|---|---|---|---|---|---|---|---|---|---|")
    for count in shards:
        for copies in replicas:
            for share in load:
                plain, twice = (
                    simulate(measured, count, copies, share, hedged=hedged, searches=searches, seed=seed)
                    for hedged in (False, True)
                )
                typer.echo(
                    f"| {count} | {copies} | {share} | {plain['p50']:.1f} | {plain['p99']:.1f} | {plain['p999']:.1f} "
                    f"| {twice['p50']:.1f} | {twice['p99']:.1f} | {twice['p999']:.1f} | {twice['extra']:.1%} |"
                )


if __name__ == "__main__":
    typer.run(main)
