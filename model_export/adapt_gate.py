"""Judges whether an adapted model is better than its base model, by queries that neither was trained on.

The queries are the user's judged ones, if given. Otherwise they are `clicked_queries` of documents held out of
training, if there are enough, and else queries synthesized from those documents. Synthesized ones are weak evidence:
they favor a model trained on similar ones even if it got worse for users (docs/results/models.md). A model is
recommended if it is clearly better in dense and not worse in hybrid search, and refused if clearly worse in either.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.collection import parse_object
from glow.evaluation import (
    Comparison,
    DenseOptions,
    RetrieverKind,
    Task,
    compare,
    find_tasks,
    grades_by_query,
    ndcg,
    open_retriever,
)
from glow.runtime import Model

__all__ = ["AdaptVerdict", "clicked_only", "judge_adapted", "judging_folder"]

MEASURE, DEPTH = "nDCG@10", 10
RETRIEVERS: tuple[RetrieverKind, ...] = ("dense", "hybrid")
MIN_CLICKED = 50
"""From so many clicked queries of held-out documents on, they alone judge."""
MAX_QUERIES, MAX_OTHERS = 1000, 4000
"""Most queries, and most documents besides the relevant ones."""


@dataclass(frozen=True, slots=True)
class AdaptVerdict:
    """The result of the comparison.

    Attributes:
        source: source of the queries.
        comparisons: nDCG@10 by retriever; A is the base model, B the adapted one.
        publish: whether the adapted model is recommended.
        worse: retrievers with which it is clearly worse: the 95 % interval of the difference is below 0.
    """

    source: str
    comparisons: Mapping[str, Comparison]
    publish: bool
    worse: tuple[str, ...]

    @property
    def says(self) -> str:
        """The verdict in one line."""
        parts = [
            f"{name} {each.mean_a:.3f} -> {each.mean_b:.3f} ({each.low:+.3f} to {each.high:+.3f})"
            for name, each in self.comparisons.items()
        ]
        advice = (
            "use it"
            if self.publish
            else "worse, do not use it"
            if self.worse
            else "no clear gain, keep the old one"
        )
        queries = next(iter(self.comparisons.values())).queries
        return f"{MEASURE} over {queries} {self.source}: {'; '.join(parts)}: {advice}"

    def record(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        rounded = {
            name: {
                key: value if isinstance(value, int) else round(value, 5)
                for key, value in asdict(each).items()
            }
            for name, each in self.comparisons.items()
        }
        return {
            "source": self.source,
            "measure": MEASURE,
            "publish": self.publish,
            "worse": list(self.worse),
            "says": self.says,
            **rounded,
        }


def judge_adapted(
    before: Model, adapted: Model, data: Path, split: str, source: str, threads: int
) -> AdaptVerdict:
    """Searches with both models and compares the results.

    Args:
        before, adapted: the models.
        data: data directory with documents, queries and relevance judgments.
        split: split of the judgments.
        source: kind of the queries, for the report.
        threads: threads of one encoding.

    Raises:
        InputError: if the directory cannot be read, or no judged query has a relevant document in it.
    """
    (task,) = find_tasks(data, [split])
    comparisons: dict[str, Comparison] = {}
    for kind in RETRIEVERS:
        old, new = (_values(kind, model, data, task, threads) for model in (before, adapted))
        comparisons[kind] = compare(old, new)
    worse = tuple(name for name, each in comparisons.items() if each.high < 0.0)
    publish = not worse and comparisons["dense"].low > 0.0 and comparisons["hybrid"].difference >= 0.0
    return AdaptVerdict(source, comparisons, publish, worse)


def clicked_only(pairs: Path) -> bool:
    """Reduces the split `dev` of synthesized data to the clicked queries if there are enough; returns whether it did."""
    kinds = {}
    for line in (pairs / "queries.jsonl").read_bytes().splitlines():
        query = parse_object(line)
        kinds[query["_id"]] = query["kind"]
    path = pairs / "qrels" / "dev.tsv"
    header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    clicked = [row for row in rows if kinds[row.split("\t")[0]] == "clicked"]
    if len(clicked) < MIN_CLICKED:
        return False
    temporary = path.with_suffix(".part")
    temporary.write_text("".join([header, *clicked]), encoding="utf-8")
    temporary.replace(path)
    return True


def judging_folder(data: Path, split: str, out: Path, seed: int) -> Path:
    """Samples a data directory: at most `MAX_QUERIES` queries of a split, their documents and `MAX_OTHERS` others.

    Args:
        data: data directory with documents, queries and relevance judgments.
        split: split of the judgments.
        out: directory to write.
        seed: seed of the sample.

    Raises:
        InputError: if the directory cannot be read, or holds none of the judged documents.
    """
    (task,) = find_tasks(data, [split])
    random = np.random.default_rng(seed)
    kept = {task.queries[place].id for place in random.permutation(len(task.queries))[:MAX_QUERIES]}
    qrels = [qrel for qrel in task.qrels if qrel.query_id in kept]
    wanted = {qrel.document_id for qrel in qrels}
    lines = [line for line in (data / "corpus.jsonl").read_bytes().splitlines() if line.strip()]
    ids = [parse_object(line).get("_id") for line in lines]
    task.check([str(each) for each in ids])
    others = [place for place, each in enumerate(ids) if each not in wanted]
    drawn = {others[place] for place in random.permutation(len(others))[:MAX_OTHERS]}
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    there = [line for place, line in enumerate(lines) if place in drawn or ids[place] in wanted]
    (out / "corpus.jsonl").write_bytes(b"\n".join(there) + b"\n")
    queries = [{"_id": query.id, "text": query.text} for query in task.queries if query.id in kept]
    (out / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries), encoding="utf-8")
    rows = [f"{qrel.query_id}\t{qrel.document_id}\t{qrel.grade}\n" for qrel in qrels]
    (out / "qrels" / f"{split}.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8"
    )
    return out


def _values(kind: RetrieverKind, model: Model, data: Path, task: Task, threads: int) -> NDArray[np.float64]:
    """nDCG@10 of every query."""
    options = DenseOptions(threads=threads, cache=data / "vectors")
    retriever = open_retriever(kind, data, model, options)
    run = retriever.search(task.queries, DEPTH)
    grades = grades_by_query(task.qrels)
    found = [
        ndcg([hit.document_id for hit in run[query.id]], grades[query.id], DEPTH) for query in task.queries
    ]
    return np.array(found, np.float64)
