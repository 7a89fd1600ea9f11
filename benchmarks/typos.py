"""What slips of the keyboard cost, and what of that comes back by correcting them.

    python -m benchmarks.typos --data $DATA/tldr --index-root INDEX_ROOT [--split dev] [--seeds 5]

A seeded typist makes one slip in one content word of each query: a letter left out, doubled, hit beside, or swapped with its
neighbour, each as often. Measured are the queries as they came and with their slip, each with and without correction.
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
from glow.evaluation.retrieval import open_version
from glow.evaluation.retrieval.served import ServedRetriever
from glow.evaluation.task import Task
from glow.records import Query
from glow.search import Retriever, Typos, read_query
from glow.text import is_lexical

__all__ = ["slip", "slipped"]

RETRIEVERS: tuple[Retriever, ...] = ("dense", "hybrid")
LEAST_LETTERS = 4
CUT, MEASURE = 10, "RR@10"
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Of a keyboard: a key is hit beside its neighbours in a row."""


def slip(word: str, chance: random.Random) -> str:
    """A word with one slip, which makes another word of it."""
    while True:
        at = chance.randrange(len(word))
        kind = chance.choice(("left out", "doubled", "beside", "swapped"))
        if kind == "left out":
            slipped_word = word[:at] + word[at + 1 :]
        elif kind == "doubled":
            slipped_word = word[: at + 1] + word[at:]
        elif kind == "beside":
            slipped_word = word[:at] + chance.choice(_beside(word[at])) + word[at + 1 :]
        else:
            slipped_word = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
        if slipped_word != word:
            return slipped_word


def _beside(letter: str) -> str:
    for row in ROWS:
        at = row.find(letter)
        if at >= 0:
            return row[max(at - 1, 0) : at] + row[at + 1 : at + 2]
    return letter


def slipped(queries: Sequence[Query], seed: int) -> list[Query]:
    """Each query with a slip in one of its content words; one without such a word stays as it is."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    made = []
    for query in queries:
        words = query.text.split(" ")
        places = [
            at
            for at, word in enumerate(words)
            if len(word) >= LEAST_LETTERS and word.isascii() and word.isalpha() and is_lexical(word.lower())
        ]
        if places:
            at = chance.choice(places)
            words[at] = slip(words[at].lower(), chance)
        made.append(Query(query.id, " ".join(words)))
    return made


def measure(root: Path, data: Path, split: str, seeds: int) -> dict[str, Any]:
    """Figures of one collection."""
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
            "slips": [round(each, 4) for each in off],
            "slips, corrected": [round(each, 4) for each in auto],
            "back": [round(each, 3) for each in back],
        }
    return figures


def _reciprocal_rank(served: ServedRetriever, task: Task, queries: Sequence[Query], typos: Typos) -> float:
    served.typos = typos
    return evaluate(served.search(queries, CUT), task.qrels, [MEASURE]).means[MEASURE]


def _microseconds(index: Any, queries: Sequence[Query]) -> float:
    for query in queries[:200]:
        read_query(index, query.text)
    took = []
    for typos in ("off", "auto"):
        started = time.process_time()
        for query in queries:
            read_query(index, query.text, typos)
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
