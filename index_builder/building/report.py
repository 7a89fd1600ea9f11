"""The figures of a build: the report, which the version stores and `--json` prints, and the recall of its index."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow import __version__
from glow.artifact import EXPLAIN_FILES
from glow.commands import counted
from glow.index import MODEL_FOLDER
from glow.index.stored_fields import StoredDocuments
from glow.index.vectors import DenseView, VectorRows
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.text import Preprocessor, TermTable
from glow_index_builder.building.documents import CorpusStats
from glow_index_builder.encoding.blocks import EncodedBlocks
from glow_index_builder.input.lines import written_of
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages

ALWAYS = ("index", "recall", "columns", "lexical", "explain")
"""Members of every report; null if they do not apply."""


def build_report(
    version: str,
    options: CommonOptions,
    model: Model,
    corpus: CorpusStats,  # the documents that were read
    terms: TermTable,  # the index's term statistics
    encoded: EncodedBlocks,
    components: Mapping[str, Any],  # the components' own figures, the recall and the explanations' size
    stages: Stages,
) -> dict[str, Any]:
    """The figures of a build: `report.json`, whose keys docs/indexing.md describes."""
    rejected = sum(corpus.rejects.values())
    truncated: Counter[str] = sum((Counter(block.truncated) for block in encoded.blocks), Counter())
    seconds = stages.report
    peaks = {**stages.peaks, "worker": max((block.peak_memory_bytes for block in encoded.blocks), default=0)}
    return {
        "status": "built",
        "version": version,
        "tool": f"glow {__version__}",
        "model": {"name": model.manifest.name, "hash": model.hash},
        "options": options.parameters(),
        "counts": {
            "documents": corpus.documents,
            "reused": encoded.reused,
            "rejects": rejected,
            "lines": corpus.documents + rejected,
            "read_bytes": corpus.read_bytes,
        },
        **{name: dict(getattr(corpus, name)) for name in ("rejects", "ids", "forms")},
        "unused_renames": sorted(options.rename.keys() - set(corpus.renamed)),
        "long_documents": corpus.long.report(),
        "truncated": dict(truncated),
        "terms": {
            "source": options.term_stats,
            "hash": terms.hash,
            "documents": terms.documents,
            "words": len(terms),
            "dropped_words": terms.dropped_words,
            "average_lengths": terms.lengths,
        },
        "shards": {
            "documents": options.shard_documents,
            "count": len(encoded.blocks),
            "resumed": encoded.resumed,
            "failures": encoded.failures,
            "runner": options.runner,
            "workers": options.workers,
            "seconds": round(sum(block.seconds for block in encoded.blocks), 3),
        },
        "seconds": seconds,
        "documents_per_second": {
            "encode": _rate(encoded.documents, seconds["encode"]),
            "total": _rate(corpus.documents, seconds["total"]),
        },
        "peak_memory_bytes": max(peaks.values()),
        "stage_peak_memory_bytes": peaks,
        **dict.fromkeys(ALWAYS),
        **components,
    }


def describe_explain(folder: Path) -> dict[str, Any] | None:
    """Bytes of the data for explanations in a version's directory; None if it holds none."""
    paths = [folder / MODEL_FOLDER / name for name in EXPLAIN_FILES]
    return {"size_bytes": sum(path.stat().st_size for path in paths)} if paths[0].is_file() else None


def left_out_words(report: Mapping[str, Any], rejects_file: Path | None) -> list[str]:
    """Lines about the rejected lines and skipped files that a report counts."""
    words, rejects = [], report["counts"].get("rejects", 0)
    if rejects_file:
        faults = ", ".join(f"{count} x {fault}" for fault, count in report["rejects"].items())
        words.append(f"{counted(rejects, 'line')} rejected: {faults}; {written_of(rejects)} {rejects_file}")
    if skipped := report.get("skipped"):
        words.append(f"skipped: {', '.join(f'{count} {ending}' for ending, count in skipped.items())}")
    return words


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Writes JSON values, indented."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _rate(documents: int, seconds: float) -> float:
    return round(documents / max(seconds, 1e-9), 1)


RECALL_FLOOR = 0.95
"""Lower recall causes a warning."""
SAMPLED_QUERIES, DEPTH, SEED = 200, 10, 0
QUERY_FIELDS = ("title", "clicked_queries")
BLOCK_VECTORS = 4_096
TIE = 1e-5
"""Scores of two products of the same vectors may differ by so much, by rounding."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall of an index against exact search."""

    recall: float  # mean fraction of the exact top `depth` that the index returns, in [0, 1]; ties count
    depth: int  # hits per query
    queries: int  # number of sampled queries
    seed: int  # of the sample


def measure_recall(
    index: DenseView,
    vectors: VectorRows,  # float32 [n, D], in the index's order; read in blocks
    store: StoredDocuments,
    preprocessor: Preprocessor,
    encoder: Encoder,
) -> Recall:
    """Compares the index with exact search, by titles and clicked queries: vectors of the index would overstate recall."""
    generator = np.random.default_rng(SEED)
    rows = generator.choice(store.count, min(SAMPLED_QUERIES, store.count), replace=False)
    texts = [_query_of(document, generator) for document in store.rows(np.sort(rows).tolist())]
    queries = encoder.encode([preprocessor.query(text) for text in texts])
    depth = min(DEPTH, vectors.shape[0])
    least = _exact_scores(queries, vectors, depth)[:, -1]
    _, nearest = index.search(queries, depth)
    scores = np.einsum("qd,qkd->qk", queries, vectors[np.maximum(nearest, 0)])
    hits = (scores >= least[:, None] - TIE) & (nearest >= 0)
    return Recall(float(hits.mean()), depth, len(texts), SEED)


def _query_of(document: Document, generator: np.random.Generator) -> str:
    """One of the document's titles and clicked queries, or the start of its text if it has neither."""
    fields = document.fields
    candidates = [text for name in QUERY_FIELDS for text in fields.get(name, ()) if text.strip()]
    if not candidates:
        candidates = [text for values in fields.values() for text in values if text.strip()][:1]
    return candidates[int(generator.integers(len(candidates)))]


def _exact_scores(queries: NDArray[np.float32], vectors: VectorRows, depth: int) -> NDArray[np.float32]:
    """The best scores of each query, float32 [q, depth], descending; vectors are read block by block."""
    best = np.full((len(queries), depth), -np.inf, np.float32)
    for start in range(0, vectors.shape[0], BLOCK_VECTORS):
        scores = queries @ vectors[start : start + BLOCK_VECTORS].T
        best = np.sort(np.concatenate([best, scores], axis=1), axis=1)[:, : -depth - 1 : -1]
    return best
