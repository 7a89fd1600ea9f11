"""Compares lexical retrieval with bm25s: equal hits, and queries per second on one thread.

OMP_NUM_THREADS=1 python -m benchmarks.lexical --index INDEX_ROOT --data DIR --split dev [--queries 500] [--json FILE]

bm25s (method lucene) gets the words, k1 and b of the index, and its impacts are scaled to the idf of the index's term
statistics, so both hold the same numbers. It answers all queries in one call of `retrieve`, without progress bar, on the
numpy backend, as its documentation advises. The index answers them one by one, as a service does.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import bm25s
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import emit_json
from glow.artifact import IndexRoot
from glow.evaluation import find_tasks
from glow.index import Index
from glow.index.postings import IMPACTS_FOLDER, POSTINGS, ImpactIndex
from glow.index.stored_fields import STORED_FIELDS
from glow.text import is_lexical, lexical_words
from glow.text.weighting import idf_lucene

K = 10
ROUNDS = 7
SAME = 1e-5
"""Tolerance for different orders of float32 addition."""


def reference(index: Index, impacts: ImpactIndex) -> Any:
    """The index's documents in bm25s, with the idf of the index's term statistics."""
    own, parameters = index.preprocessor, impacts.header.parameters
    documents = [
        [word for word in lexical_words(document, own.schema, own.pieces) if is_lexical(word)]
        for document in index[STORED_FIELDS].scan()
    ]
    peer = bm25s.BM25(k1=parameters["k1"], b=parameters["b"], method="lucene")
    peer.index(documents, show_progress=False)
    counts = np.diff(peer.scores["indptr"])
    total = float(own.terms.documents)
    for word, row in peer.vocab_dict.items():
        if row < len(counts) and counts[row]:
            wanted = idf_lucene(float(min(max(own.terms.df(word), 1), total)), total)
            held = slice(peer.scores["indptr"][row], peer.scores["indptr"][row + 1])
            peer.scores["data"][held] *= wanted / idf_lucene(float(counts[row]), float(len(documents)))
    return peer


def same_hits(
    ours: tuple[NDArray[np.float32], NDArray[np.int64]], theirs: tuple[NDArray[Any], NDArray[Any]]
) -> bool:
    """Whether two rankings agree, except for documents that tie with the last rank."""
    scores, rows = ours
    other_scores, other_rows = theirs
    held = other_scores > 0
    other_scores, other_rows = other_scores[held], other_rows[held]
    if len(scores) != len(other_scores):
        return False
    if not len(scores):
        return True
    close = np.allclose(np.sort(scores), np.sort(other_scores), rtol=SAME)
    above = min(scores[-1], other_scores.min()) * (1 + 2 * SAME)
    return bool(
        close and set(rows[scores > above].tolist()) == set(other_rows[other_scores > above].tolist())
    )


def main(
    index: Annotated[Path, typer.Option(help="Index root with a lexical index.")],
    data: Annotated[Path, typer.Option(help="Data folder with the queries.")],
    split: Annotated[str, typer.Option(help="Judgements that name the queries.")] = "dev",
    queries: Annotated[int, typer.Option(help="Most queries, drawn with a seed.")] = 500,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Prints agreement, queries per second and sizes as JSON."""
    root = IndexRoot(index)
    folder = root.folder(root.current())
    opened = Index.open(folder)
    impacts = opened[POSTINGS]
    if impacts is None:
        raise typer.BadParameter("this index holds no lexical index")
    asked = find_tasks(data, [split])[0].queries
    drawn = np.random.default_rng(0).permutation(len(asked))[:queries]
    words = [opened.preprocessor.pieces.words(asked[place].text) for place in np.sort(drawn)]
    peer = reference(opened, impacts)  # type: ignore[arg-type]  # not typed by its library
    ours = [impacts.search(query, K) for query in words]
    rows, scores = peer.retrieve(words, k=K, show_progress=False, backend_selection="numpy")
    agreed = [
        same_hits(mine, theirs) for mine, theirs in zip(ours, zip(scores, rows, strict=True), strict=True)
    ]
    took: dict[str, list[float]] = {"impacts": [], "bm25s": []}
    for _ in range(ROUNDS):  # alternating, so that other load delays both
        start = time.perf_counter()
        for query in words:
            impacts.search(query, K)
        middle = time.perf_counter()
        peer.retrieve(words, k=K, show_progress=False, backend_selection="numpy")
        took["bm25s"].append(time.perf_counter() - middle)
        took["impacts"].append(middle - start)
    size = sum((folder / IMPACTS_FOLDER / name).stat().st_size for name in impacts.header.files)  # type: ignore[attr-defined]  # the part itself, behind its view
    report = {
        "documents": len(impacts),
        "postings": impacts.header.postings,  # type: ignore[attr-defined]  # the part itself, behind its view
        "queries": len(words),
        "same_top_10": sum(agreed) / len(agreed),
        "queries_per_second": {name: round(len(words) / min(times)) for name, times in took.items()},
        "median_queries_per_second": {
            name: round(len(words) / float(np.median(times))) for name, times in took.items()
        },
        "bytes_per_posting": round(size / max(impacts.header.postings, 1), 2),  # type: ignore[attr-defined]  # the part itself, behind its view
    }
    emit_json(report, json_file)


if __name__ == "__main__":
    typer.run(main)
