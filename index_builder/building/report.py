"""The build report: input, output and times. The version stores it, and `--json` prints it."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import EXPLAIN_FILES
from glow.index import MODEL_FOLDER
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.building.documents import CorpusStats
from glow_index_builder.encoding import EncodedBlocks
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
    truncated: Counter[str] = Counter()
    for block in encoded.blocks:
        truncated.update(block.truncated)
    seconds = stage_seconds(stages.seconds)
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
        "rejects": dict(corpus.rejects),
        "ids": dict(corpus.ids),
        "forms": dict(corpus.forms),
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
        "shards": _blocks(options, encoded),
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


def _blocks(options: CommonOptions, encoded: EncodedBlocks) -> dict[str, Any]:
    return {
        "documents": options.shard_documents,
        "count": len(encoded.blocks),
        "resumed": encoded.resumed,
        "failures": encoded.failures,
        "runner": options.runner,
        "workers": options.workers,
        "seconds": round(sum(block.seconds for block in encoded.blocks), 3),
    }


def describe_explain(folder: Path) -> dict[str, Any] | None:
    """Bytes of the data for explanations in a version's directory; None if it holds none."""
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
