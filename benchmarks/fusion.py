"""Compares the quality of dense, lexical and hybrid search of an index.

python -m benchmarks.fusion --index INDEX_ROOT --data DIR --split dev [--rel 1] [--json FILE]

Rankings come from the retrievers of a service and the same fusion function: with the index's own fusion (the default
unless tuned) and with plain reciprocal ranks. The last lines compare the index's fusion with its better retriever.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import emit_json
from glow.artifact import IndexRoot
from glow.evaluation import compare, evaluate, find_tasks
from glow.index import Fusion, FusionWeights, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Hit
from glow.search import DEFAULT_CANDIDATES, EncodedQuery, analyze_query
from glow_index_builder.versions.tune import JudgedQuery, candidates_of

MEASURES = ("RR@10", "nDCG@10", "R@100")
PLAIN = Fusion(method="rrf", weights=FusionWeights(dense=1, lexical=1))
DEPTH = 100
QUERIES_AT_ONCE = 64


def main(
    index: Annotated[Path, typer.Option(help="Index root with a lexical index.")],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    split: Annotated[str, typer.Option(help="Judgements, qrels/SPLIT.tsv.")] = "dev",
    rel: Annotated[int, typer.Option(help="Lowest relevant grade, for RR and R.")] = 1,
    candidates: Annotated[int, typer.Option(help="Hits of each part that are fused.")] = DEFAULT_CANDIDATES,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Prints measures and the paired interval of the gain as JSON."""
    root = IndexRoot(index)
    opened = Index.open(root.folder(root.current()))
    task = find_tasks(data, [split])[0]
    ids = [document.id for document in opened[STORED_FIELDS].scan()]
    runs: dict[str, dict[str, list[Hit]]] = {name: {} for name in ("dense", "lexical", "rrf", "hybrid")}

    def keep(name: str, query: str, found: NDArray[np.int64]) -> None:
        runs[name][query] = [Hit(ids[row], -float(place)) for place, row in enumerate(found[:DEPTH].tolist())]

    for start in range(0, len(task.queries), QUERIES_AT_ONCE):
        block = task.queries[start : start + QUERIES_AT_ONCE]
        readings = [analyze_query(opened, query.text, "off") for query in block]
        vectors = opened.encoder.encode([reading.tokens for reading in readings])
        for query, reading, vector in zip(block, readings, vectors, strict=True):
            asked = JudgedQuery(EncodedQuery(reading.text, vector), {}, 1.0)  # `evaluate` reads the qrels
            found = candidates_of(opened, asked, candidates)
            keep("dense", query.id, found.dense[1])
            keep("lexical", query.id, found.lexical[1])
            keep("rrf", query.id, found.fuse(PLAIN, opened.order).rows)
            keep("hybrid", query.id, found.fuse(opened.fusion, opened.order).rows)
    measured = {name: evaluate(run, task.qrels, MEASURES, rel) for name, run in runs.items()}
    better = max(("dense", "lexical"), key=lambda name: measured[name].means["nDCG@10"])
    gains = {
        name: compare(measured[better].values[name], measured["hybrid"].values[name])
        for name in ("RR@10", "nDCG@10")
    }
    report = {
        "data": f"{task.data}/{task.split}",
        "queries": len(task.queries),
        "documents": len(ids),
        "fusion": opened.fusion.model_dump(),
        "measures": {
            name: {measure: round(value, 4) for measure, value in found.means.items()}
            for name, found in measured.items()
        },
        "better_part": better,
        "gain": {
            name: {"mean": round(gain.difference, 4), "low": round(gain.low, 4), "high": round(gain.high, 4)}
            for name, gain in gains.items()
        },
    }
    emit_json(report, json_file)


if __name__ == "__main__":
    typer.run(main)
