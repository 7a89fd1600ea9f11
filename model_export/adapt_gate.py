"""Whether an adapted model is better than the one it came from, by queries that neither was trained on.

The queries are judged ones of one's own where there are some; else those that people asked of documents that were held out of training
(`clicked_queries`), where there are enough; else queries made of those documents. Made ones are weak evidence: a model that was trained on
others of their kind is favoured, also where it got worse for people (docs/results/models.md). A model is recommended where it is clearly
better by vectors and not worse by hybrid search, and refused where it is clearly worse by either.
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
"""Clicked queries of held-out documents that judge alone: fewer say too little."""
MAX_QUERIES, MAX_OTHERS = 1000, 4000
"""Bounds of what is looked at: queries, and documents beside the relevant ones."""


@dataclass(frozen=True, slots=True)
class AdaptVerdict:
    """What the comparison found.

    Attributes:
        source: where the queries came from.
        comparisons: of nDCG@10, by retriever; A is the model before, B the adapted one.
        publish: whether the adapted model is recommended.
        worse: retrievers by which it is clearly worse: the whole 95 % interval of the difference lies below 0.
    """

    source: str
    comparisons: Mapping[str, Comparison]
    publish: bool
    worse: tuple[str, ...]

    @property
    def says(self) -> str:
        """One line for people."""
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
        """As JSON values."""
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
    """Searches with both models, and compares.

    Args:
        before, adapted: the models.
        data: folder of documents, queries and judgements.
        split: of the judgements.
        source: what the queries are, for the report.
        threads: of an encoding.

    Raises:
        InputError: if the folder cannot be read, or holds no judged query whose relevant document it holds.
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
    """Leaves the clicked queries alone in a synthesized folder's split `dev`, where they are enough; returns whether they are."""
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
    """A folder with at most `MAX_QUERIES` of a split's queries, their documents, and at most `MAX_OTHERS` others, drawn by a seed.

    Args:
        data: folder of documents, queries and judgements.
        split: of the judgements.
        out: folder to write.
        seed: of the draws.

    Raises:
        InputError: if the folder cannot be read, or none of its judged documents is there.
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
