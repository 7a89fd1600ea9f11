"""Simulates users of an index, and writes the query log and feedback log of a service.

A user examines rank k with probability k^-0.7, clicks a relevant document with .8, another one with .08, and returns at once
from some of the latter. A bot searches and clicks a fixed document wherever it is shown, otherwise the last hit.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from glow.collection import read_qrels, read_queries
from glow.feedback import Feedback
from glow.query_log import LoggedQuery
from glow_service.search import SearchSession, check_search
from glow_service.settings import Settings
from research.candidates import open_index
from research.folders import write_lines

__all__ = ["simulate"]

RETRIEVERS, SHARES = ("hybrid", "dense", "lexical"), (0.8, 0.1, 0.1)
EXPONENT, GOOD, NOISE, SHORT = 0.7, 0.8, 0.08, 0.4
SEARCHES, DEPTH, DAYS, SALT_DAYS = 120_000, 10, 60, 30
START = datetime(2026, 9, 1, tzinfo=UTC)


def simulate(
    data: Path, index_root: Path, rankings_file: Path, out: Path, seed: int, bot: str | None
) -> None:
    """Writes `queries.jsonl` and `feedback.jsonl`.

    Args:
        data: data directory with the questions of the split `train`.
        index_root: searched for each question by each retriever, unless `rankings_file` exists.
        rankings_file: the rankings, kept for other seeds.
        out: directory of the logs.
        seed: seed of all random choices.
        bot: `fast` or `slow`, a bot among the users.
    """
    relevant: defaultdict[str, set[str]] = defaultdict(set)
    for row in read_qrels(data / "qrels" / "train.tsv"):
        relevant[row.query_id].add(row.document_id)
    queries = [each for each in read_queries(data / "queries.jsonl") if each.id in relevant]
    if not rankings_file.exists():
        _rank(index_root, [each.text for each in queries], rankings_file)
    rankings = json.loads(rankings_file.read_text())
    log = _Log()
    random = np.random.default_rng(seed)
    popularity = np.arange(1, len(queries) + 1) ** -0.7
    order = random.permutation(len(queries))
    asked = order[random.choice(len(queries), SEARCHES, p=popularity / popularity.sum())]
    users = random.integers(0, 20_000, SEARCHES)
    chosen = random.choice(len(RETRIEVERS), SEARCHES, p=SHARES)
    seconds = np.sort(random.uniform(0, DAYS * 86_400, SEARCHES))
    for number in range(SEARCHES):
        query = queries[asked[number]]
        hits = rankings[RETRIEVERS[chosen[number]]][asked[number]]
        time, source = START + timedelta(seconds=float(seconds[number])), f"user-{users[number]}"
        log.search(f"s{number}", query.text, hits, time)
        for rank, identifier in enumerate(hits, start=1):
            is_good = identifier in relevant[query.id]
            if random.random() < rank**-EXPONENT and random.random() < (GOOD if is_good else NOISE):
                is_short = not is_good and random.random() < SHORT
                log.click(f"s{number}", identifier, 2.0 if is_short else 60.0, source, time)
    if bot:
        _bot(log, bot, [each.text for each in queries], rankings["hybrid"], random)
    log.write(out)


def _bot(
    log: "_Log", kind: str, texts: Sequence[str], rankings: list[list[str]], random: np.random.Generator
) -> None:
    target = rankings[0][-1]
    for number in range(10_000):
        query = int(random.integers(len(texts)))
        time = (
            START + timedelta(days=30, seconds=number)
            if kind == "fast"
            else START + timedelta(seconds=number * 512)
        )
        hits = rankings[query]
        log.search(f"bot{number}", texts[query], hits, time)
        log.click(f"bot{number}", target if target in hits else hits[-1], 60.0, "bot", time)


def _rank(root: Path, texts: Sequence[str], path: Path) -> None:
    """Searches the index for every question by every retriever."""
    index = open_index(root, threads=2)
    limits = Settings(index_root=root).limits
    found: dict[str, list[list[str]]] = {}
    for retriever in RETRIEVERS:
        found[retriever] = []
        for text in texts:
            body = {"query": text, "retriever": retriever, "top_k": DEPTH, "fields": [], "typos": "off"}
            answer = SearchSession(index, check_search(body, limits, index).call).run()
            found[retriever].append([hit.id for hit in answer.found.hits])
    path.write_text(json.dumps(found))


class _Log:
    """Both logs."""

    def __init__(self) -> None:
        self._searches: list[str] = []
        self._clicks: list[str] = []

    def search(self, request_id: str, query: str, hits: Sequence[str], time: datetime) -> None:
        logged = LoggedQuery(
            request_id, query, "hybrid", DEPTH, 0, "v", 1.0, hits=tuple(hits), time=time.isoformat()
        )
        self._searches.append(json.dumps(logged.values()))

    def click(self, request_id: str, identifier: str, dwell_s: float, source: str, time: datetime) -> None:
        period = str((time - START).days // SALT_DAYS)
        mark = f"{source}-{period}"  # users are not recognizable under another salt
        feedback = Feedback(request_id, identifier, "click", None, dwell_s, mark, time.isoformat(), period)
        self._clicks.append(json.dumps(feedback.values()))

    def write(self, folder: Path) -> None:
        write_lines(folder / "queries.jsonl", self._searches)
        write_lines(folder / "feedback.jsonl", self._clicks)
