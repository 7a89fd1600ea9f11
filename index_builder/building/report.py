"""The build report: what came in, what came out, how long it took; in the version and for `--json`."""

import json
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import EXPLAIN_FILES
from glow.runtime import Model
from glow.search import (
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    MODEL_FOLDER,
    ColumnsHeader,
    ImpactHeader,
    IndexKind,
    index_bytes,
)
from glow.text import TermTable
from glow_index_builder.building.corpus import CorpusStats
from glow_index_builder.encoding import Encoded
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages

__all__ = [
    "build_report",
    "describe_columns",
    "describe_explain",
    "describe_index",
    "describe_lexical",
    "stage_seconds",
    "write_json",
]


def build_report(
    version: str,
    options: BuildOptions,
    model: Model,
    corpus: CorpusStats,
    rejects: dict[str, int],
    terms: TermTable,
    encoded: Encoded,
    stages: Stages,
) -> dict[str, Any]:
    """The report as JSON values, but for the parts of the version; docs/indexing.md describes every key."""
    seconds, rejected = stages.seconds, sum(rejects.values())
    peaks = {**stages.peaks, "worker": encoded.peak_memory_bytes}
    return {
        "status": "built",
        "version": version,
        "tool": f"glow {__version__}",
        "model": {"name": model.manifest.name, "hash": model.hash},
        "options": options.parameters(),
        "counts": {
            "documents": corpus.documents,
            "rejects": rejected,
            "lines": corpus.documents + rejected,
            "read_bytes": corpus.read_bytes,
        },
        "rejects": rejects,
        "truncated": dict(encoded.truncated),
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
            "count": len(encoded.shards),
            "resumed": encoded.resumed,
            "failures": encoded.failures,
            "runner": options.runner,
            "workers": options.workers,
            "seconds": round(encoded.seconds, 3),
        },
        "seconds": stage_seconds(seconds),
        "documents_per_second": {
            "encode": _rate(encoded.documents, seconds["encode"]),
            "total": _rate(corpus.documents, sum(seconds.values())),
        },
        "peak_memory_bytes": max(peaks.values()),
        "stage_peak_memory_bytes": peaks,
    }


def describe_index(
    kind: IndexKind, options: BuildOptions, count: int, dimensions: int, size_bytes: int
) -> dict[str, Any]:
    """Kind, reason and size of the dense index over `count` documents or passages."""
    unit = "passages" if options.passages else "documents"
    if options.index != "auto":
        why = "asked for by --index"
    elif kind == "flat":
        why = f"{count} {unit} are few enough to compare with every one"
    else:
        graph_mb = index_bytes("hnsw", count, dimensions) / 2**20
        fits = "fits" if graph_mb <= options.memory_mb else "does not fit"
        why = (
            f"{count} {unit} are too many to compare with every one, and with its vectors whole the index of "
            f"about {graph_mb:.0f} MiB {fits} into --memory-mb {options.memory_mb}"
        )
    return {
        "kind": kind,
        "why": why,
        "device": options.device,
        "dimensions": dimensions,
        "size_bytes": size_bytes,
    }


def describe_columns(header: ColumnsHeader) -> dict[str, Any]:
    """Which metadata can be filtered by: for each field its documents, and by type the different values."""
    fields = {
        field.name: {
            "documents": field.documents,
            "distinct": {part.type: part.distinct for part in field.parts},
            "lists": any(part.has_lists for part in field.parts),
        }
        for field in header.fields
    }
    return {"fields": fields, "left_out": header.left_out, "left_out_fields": header.left_out_fields}


def describe_lexical(header: ImpactHeader, folder: Path) -> dict[str, Any]:
    """Counts, parameters and size of the lexical index of a version's folder."""
    size_bytes = sum((folder / IMPACTS_FOLDER / name).stat().st_size for name in IMPACTS_FILES)
    return {
        "kind": header.kind,
        "words": header.words,
        "postings": header.postings,
        "parameters": header.parameters,
        "size_bytes": size_bytes,
        "bytes_per_posting": round(size_bytes / max(header.postings, 1), 2),
    }


def describe_explain(folder: Path) -> dict[str, Any] | None:
    """Bytes that reasons for hits take in a version's folder; None where it holds none."""
    paths = [folder / MODEL_FOLDER / name for name in EXPLAIN_FILES]
    return {"size_bytes": sum(path.stat().st_size for path in paths)} if paths[0].is_file() else None


def stage_seconds(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of each stage and in all, rounded to milliseconds."""
    stages = {name: round(took, 3) for name, took in seconds.items()}
    return {**stages, "total": round(sum(seconds.values()), 3)}


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Writes JSON values, indented."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _rate(documents: int, seconds: float) -> float:
    return round(documents / max(seconds, 1e-9), 1)
