"""Cost of explanations and snippets: `python -m benchmarks.explain_cost --model models/glow-mini --data $DATA/medquad`.

CPU milliseconds of one thread (wall time would include other load), each compared with the plain towers.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.report import emit_json
from glow.collection import read_documents, read_queries
from glow.records import Document
from glow.runtime import Model
from glow.runtime.explain import Explainer
from glow.text.highlight import Highlighter

HITS, QUERIES = 10, 40
LONG = {"1 MB ASCII": "The bees go home. ", "1 MB accents": "Café crème brûlée. ", "1 MB CJK": "東京は日本"}


def milliseconds(work: Callable[[int], object], times: int) -> dict[str, float]:
    """p50 and p99 of CPU time over `times` calls, which get their number."""
    work(0)
    found = []
    for number in range(times):
        started = time.process_time()
        work(number)
        found.append((time.process_time() - started) * 1_000)
    return {"p50": round(float(np.median(found)), 2), "p99": round(float(np.percentile(found, 99)), 2)}


def main(
    model: Annotated[Path, typer.Option(help="Model with explain graphs.")],
    data: Annotated[Path, typer.Option(help="BEIR-style folder.")],
) -> None:
    """Prints the measurements as JSON."""
    opened = Model.open(model)
    own = opened.preprocessor
    documents = list(islice(read_documents(data / "corpus.jsonl", own.schema.names), HITS * QUERIES))
    queries = [query.text for query in islice(read_queries(data / "queries.jsonl"), QUERIES)]
    pages = [documents[start : start + HITS] for start in range(0, len(documents), HITS)]
    query_tower, document_tower = opened.encoder("query"), opened.encoder("document", batch_tokens=512)
    explainer, highlighter = Explainer(model, own), Highlighter(own)
    started = time.process_time()
    explainer.explain_query(queries[0])
    vectors = np.stack([found.vector for found in explainer.explain_documents(pages[0])])
    opening = (time.process_time() - started) * 1_000
    figures: dict[str, object] = {
        "first request": round(opening, 1),
        "encode a query": milliseconds(lambda i: query_tower.run([own.query(queries[i])]), len(queries)),
        "explain a query": milliseconds(lambda i: explainer.explain_query(queries[i]), len(queries)),
        "encode ten documents": milliseconds(
            lambda i: document_tower.encode([own.document(one) for one in pages[i]]), len(pages)
        ),
        "explain ten documents": milliseconds(lambda i: explainer.explain_documents(pages[i]), len(pages)),
        "leave each word out": milliseconds(
            lambda i: explainer.leave_one_out(queries[i], vectors), len(queries)
        ),
        "highlight ten documents": milliseconds(
            lambda i: [highlighter.document(one, queries[i]) for one in pages[i]], len(pages)
        ),
    }
    for name, text in LONG.items():
        long = Document(name, {"text": (text * (1_000_000 // len(text)),)})
        figures[f"highlight {name}"] = milliseconds(_highlighting(highlighter, long), 5)
    report = {"model": opened.label, "data": data.name, "cpu_ms": figures}
    emit_json(report)


def _highlighting(highlighter: Highlighter, document: Document) -> Callable[[int], object]:
    return lambda _: highlighter.document(document, "bees crème 東")


if __name__ == "__main__":
    typer.run(main)
