"""Measures the loss of quality by typos, and its recovery by correction.

    python -m benchmarks.typos --data $DATA/tldr --index-root INDEX_ROOT [--split dev] [--seeds 5]

Each query gets one seeded typo in one content word: a letter is left out, doubled, replaced by a neighboring key or
swapped, all equally often. Original queries and those with typos are measured, each with and without correction.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from glow.evaluation import evaluate, find_tasks
from glow.evaluation.retrievers import ServedRetriever, open_version
from glow.evaluation.task import Task
from glow.records import Query
from glow.search import Retriever, Typos, analyze_query
from glow.text import misspell_in

__all__ = ["slipped"]

RETRIEVERS: tuple[Retriever, ...] = ("dense", "hybrid")
CUT, MEASURE = 10, "RR@10"


def slipped(queries: Sequence[Query], seed: int) -> list[Query]:
    """Each query with a typo in one of its content words; one without such a word stays unchanged."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return [Query(query.id, misspell_in(query.text, chance)) for query in queries]


def measure(root: Path, data: Path, split: str, seeds: int) -> dict[str, Any]:
    """Figures of one dataset."""
    task = find_tasks(data, [split])[0]
    figures: dict[str, Any] = {"data": data.name, "queries": len(task.queries)}
    for kind in RETRIEVERS:
        index, served = open_version(root, kind)
        if kind == RETRIEVERS[0]:
            figures["analyzer"] = index.analyzer.name
            figures["correction_us"] = _microseconds(index, slipped(task.queries, 0))
        ranks = partial(_reciprocal_rank, served, task)
        clean, kept = ranks(task.queries, "off"), ranks(task.queries, "auto")
        off = [ranks(slipped(task.queries, seed), "off") for seed in range(seeds)]
        auto = [ranks(slipped(task.queries, seed), "auto") for seed in range(seeds)]
        back = [(a - o) / (clean - o) for a, o in zip(auto, off, strict=True)]
        figures[kind] = {
            "clean": round(clean, 4),
            "clean, corrected": round(kept, 4),
            "kept": round(kept / clean, 4),
            "typos": [round(each, 4) for each in off],
            "typos, corrected": [round(each, 4) for each in auto],
            "back": [round(each, 3) for each in back],
        }
    return figures


def _reciprocal_rank(served: ServedRetriever, task: Task, queries: Sequence[Query], typos: Typos) -> float:
    served.typos = typos
    return evaluate(served.search(queries, CUT), task.qrels, [MEASURE]).means[MEASURE]


def _microseconds(index: Any, queries: Sequence[Query]) -> float:
    for query in queries[:200]:
        analyze_query(index, query.text)
    took = []
    for typos in ("off", "auto"):
        started = time.process_time()
        for query in queries:
            analyze_query(index, query.text, typos)
        took.append(time.process_time() - started)
    return round((took[1] - took[0]) / len(queries) * 1e6, 1)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--index-root", type=Path, required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.index_root, options.data, options.split, options.seeds), indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
