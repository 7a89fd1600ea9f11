"""The build report: what came in, what came out, how long it took; in the version and for `--json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import EXPLAIN_FILES
from glow.index import MODEL_FOLDER
from glow.index.columns import ColumnsHeader
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FILES, LEARNED_FOLDER, ImpactHeader
from glow.index.token_embeddings import StatesHeader
from glow.index.vectors import IndexKind, index_bytes
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.building.corpus import CorpusStats
from glow_index_builder.encoding import Encoded
from glow_index_builder.options import BuildOptions

__all__ = [
    "BuildReport", "describe_columns", "describe_explain", "describe_index", "describe_learned", "describe_lexical",
    "describe_states", "stage_seconds", "write_json",
]  # fmt: skip


Section = Mapping[str, Any]
"""What a step says of itself, as JSON values."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did, step by step; `values` is `report.json`, and docs/indexing.md describes every key.

    Attributes:
        version, options, model: what was built, how, and by what.
        corpus: what was read.
        rejects: what is wrong -> lines.
        terms: the term table of the index.
        encoded: how shards were encoded.
        index, recall, columns, lexical, passages: of the parts of the version, as their steps say; None without the part.
        peaks: stage -> most memory in bytes.
        seconds: stage -> seconds, and `total`.
        build_seconds: of the stages that make the version, those that check and publish it left out.
        explain: what explanations take; None without.
        rerank: what a re-ranker's term representations take; None without.
        learned: what learned impacts take; None without.
        gate: the gate's verdict; None without one.
        published: whether the version was to become the live one; None before that is decided.
    """

    version: str
    options: BuildOptions
    model: Model
    corpus: CorpusStats
    rejects: Mapping[str, int]
    terms: TermTable
    encoded: Encoded
    index: Section
    recall: Section
    columns: Section
    lexical: Section | None
    passages: Section | None
    peaks: Mapping[str, int]
    seconds: Mapping[str, float]
    build_seconds: float
    explain: Section | None = None
    rerank: Section | None = None
    learned: Section | None = None
    gate: Section | None = None
    published: bool | None = None

    def values(self) -> dict[str, Any]:
        """The report as JSON values."""
        optional = {
            "passages": self.passages,
            "rerank": self.rerank,
            "learned": self.learned,
            "gate": self.gate,
            "published": self.published,
        }
        return {
            "status": "built",
            "version": self.version,
            "tool": f"glow {__version__}",
            "model": {"name": self.model.manifest.name, "hash": self.model.hash},
            "options": self.options.parameters(),
            "counts": self._counts(),
            "rejects": dict(self.rejects),
            "truncated": dict(self.encoded.truncated),
            "terms": self._terms(),
            "shards": self._shards(),
            "seconds": dict(self.seconds),
            "documents_per_second": {
                "encode": _rate(self.encoded.documents, self.seconds["encode"]),
                "total": _rate(self.corpus.documents, self.build_seconds),
            },
            "peak_memory_bytes": max(self._peaks().values()),
            "stage_peak_memory_bytes": self._peaks(),
            "index": self.index,
            "recall": self.recall,
            "columns": self.columns,
            "lexical": self.lexical,
            "explain": self.explain,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _counts(self) -> dict[str, int]:
        rejected = sum(self.rejects.values())
        return {
            "documents": self.corpus.documents,
            "rejects": rejected,
            "lines": self.corpus.documents + rejected,
            "read_bytes": self.corpus.read_bytes,
        }

    def _terms(self) -> dict[str, Any]:
        terms = self.terms
        return {
            "source": self.options.term_stats,
            "hash": terms.hash,
            "documents": terms.documents,
            "words": len(terms),
            "dropped_words": terms.dropped_words,
            "average_lengths": terms.lengths,
        }

    def _shards(self) -> dict[str, Any]:
        encoded, options = self.encoded, self.options
        return {
            "documents": options.shard_documents,
            "count": len(encoded.shards),
            "resumed": encoded.resumed,
            "failures": encoded.failures,
            "runner": options.runner,
            "workers": options.workers,
            "seconds": round(encoded.seconds, 3),
        }

    def _peaks(self) -> dict[str, int]:
        return {**self.peaks, "worker": self.encoded.peak_memory_bytes}


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
        **({"store": options.store} if options.store else {}),
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
    return {
        "fields": fields,
        "left_out": header.left_out,
        "left_out_fields": header.left_out_fields,
        "mixed": header.mixed,
    }


def describe_lexical(header: ImpactHeader, folder: Path) -> dict[str, Any]:
    """Counts, parameters and size of the lexical index of a version's folder."""
    size_bytes = sum((folder / IMPACTS_FOLDER / name).stat().st_size for name in header.files)
    return {
        "kind": header.kind,
        "analyzer": header.analyzer,
        "layout": header.layout,
        "words": header.words,
        "postings": header.postings,
        "parameters": header.parameters,
        "size_bytes": size_bytes,
        "bytes_per_posting": round(size_bytes / max(header.postings, 1), 2),
    }


def describe_states(header: StatesHeader, folder: Path) -> dict[str, Any]:
    """What the term representations are and take."""
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "reranker": header.model,
        "split": header.split,
        "size": header.size,
        "bits": header.bits,
        "tokens": header.tokens,
        "bytes": size_bytes,
        "bytes_per_token": round(size_bytes / max(header.tokens, 1), 1),
    }


def describe_learned(header: ImpactHeader, folder: Path, words: int) -> dict[str, Any]:
    """Counts, parameters and size of the learned impacts of a version's folder, made for so many words."""
    size_bytes = sum((folder / LEARNED_FOLDER / name).stat().st_size for name in LEARNED_FILES)
    return {
        "words": words,
        "postings": header.postings,
        "postings_per_document": round(header.postings / max(header.documents, 1), 1),
        "parameters": header.parameters,
        "size_bytes": size_bytes,
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
