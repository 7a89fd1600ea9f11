"""The build report: input, output and times. The version stores it, and `--json` prints it."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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

Section = Mapping[str, Any]
"""A step's own figures, as JSON values."""
ALWAYS = ("index", "recall", "columns", "lexical", "explain")
"""Members of every report; null if they do not apply."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The figures of a build; `values` is `report.json`, whose keys docs/indexing.md describes."""

    version: str  # the version's name, the build's options and its model
    options: CommonOptions
    model: Model
    corpus: CorpusStats  # the documents that were read
    rejects: Mapping[str, int]  # fault -> number of lines
    terms: TermTable  # the index's term statistics
    encoded: EncodedBlocks  # figures of the encoding
    recall: Section  # of the index against exact search
    components: Mapping[str, Section]  # the components' own figures
    peaks: Mapping[str, int]  # stage -> peak memory in bytes
    seconds: Mapping[str, float]  # stage -> seconds, and `total`
    build_seconds: float  # total of the stages that make the version, without checking and publishing
    explain: Section | None = None  # size of the data for explanations; None without it
    gate: Section | None = None  # the gate's verdict; None without a gate
    published: bool | None = None  # whether the build publishes the version; None before that is decided

    def values(self) -> dict[str, Any]:
        """The report as JSON values."""
        members = {**dict.fromkeys(ALWAYS), **self.components, "recall": self.recall, "explain": self.explain}
        optional = {"gate": self.gate, "published": self.published}
        return {
            "status": "built",
            "version": self.version,
            "tool": f"glow {__version__}",
            "model": {"name": self.model.manifest.name, "hash": self.model.hash},
            "options": self.options.parameters(),
            "counts": self._counts(),
            "rejects": dict(self.rejects),
            "long_documents": self.corpus.long.report(),
            "truncated": dict(sum((Counter(block.truncated) for block in self.encoded.blocks), Counter())),
            "terms": self._terms(),
            "shards": self._shards(),
            "seconds": dict(self.seconds),
            "documents_per_second": {
                "encode": _rate(self.encoded.documents, self.seconds["encode"]),
                "total": _rate(self.corpus.documents, self.build_seconds),
            },
            "peak_memory_bytes": max(self._peaks().values()),
            "stage_peak_memory_bytes": self._peaks(),
            **members,
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
            "count": len(encoded.blocks),
            "resumed": encoded.resumed,
            "failures": encoded.failures,
            "runner": options.runner,
            "workers": options.workers,
            "seconds": round(sum(block.seconds for block in encoded.blocks), 3),
        }

    def _peaks(self) -> dict[str, int]:
        worker = max((block.peak_memory_bytes for block in self.encoded.blocks), default=0)
        return {**self.peaks, "worker": worker}


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
