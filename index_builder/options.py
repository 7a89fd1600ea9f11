"""The options of one build, checked together before any work; flags and their documentation are made from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from glow.artifact import default_model
from glow.collection import MAX_DOCUMENT_BYTES
from glow.commands import IndexRootOptions, JsonOptions, all_cores, option
from glow.errors import ConfigError
from glow.index.vectors import IndexKind
from glow.runtime import Device
from glow.text import DEFAULT_ANALYZER, AnalyzerName, TermStats
from glow_index_builder.versions import GateLimits, GateOptions, parse_gate

__all__ = ["BuildOptions", "parse_rename", "rename_of"]

_MAKES_NO_DIFFERENCE = {
    "model",
    "rerank",
    "output",
    "publish",
    "workers",
    "runner",
    "ray_address",
    "resume",
    "gate",
    "json_file",
    *GateLimits.model_fields,
}
"""Options that change nothing of what comes out; neither manifest nor report needs them."""


def rename_of(value: Any) -> Any:
    """`--map` as a shell gives it: pairs; from a program, a mapping."""
    return parse_rename(value) if isinstance(value, list | tuple) else value


class BuildOptions(GateLimits, JsonOptions, IndexRootOptions):
    """What to build and how."""

    source: str = option(..., "A file, a folder of them, or - for standard input.", flag="--input")
    model: Path | None = option(None, "Model folder; default: what models/DEFAULT names.", metavar="DIR")
    publish: bool = option(True, "Make the new version the live one.")
    index: IndexKind | Literal["auto"] = option("auto", "Kind of dense index; auto suits the size.")
    device: Device = option("cpu", "Where to encode and build.")
    threads: int | None = option(None, "Threads that encode and that FAISS uses; default: all cores.", ge=1)
    rename: Mapping[str, str] = option(
        {}, "FOUND=WANTED renames a key; may be repeated.", flag="--map", metavar="FOUND=WANTED"
    )
    term_stats: TermStats = option("corpus", "Documents that idf comes from.")
    max_words: int = option(2_000_000, "Most words in the term table.", ge=1)
    max_line_bytes: int = option(MAX_DOCUMENT_BYTES, "Longest line that is read, without its end.", ge=1)
    max_reject_share: float = option(0.2, "Share of bad lines that fails the build.", ge=0.0, le=1.0)
    memory_mb: int = option(4096, "MiB the served index may take, for auto.", ge=1)
    passages: bool = option(False, "Cut long documents into passages, with a vector for each.")
    passage_field: str | None = option(None, "Field that is cut; default: the model's body.")
    passage_overlap: int = option(0, "Sentences that neighbours share.", ge=0)
    max_passages: int = option(128, "Most passages of a document.", ge=1)
    lexical: bool = option(True, "Index the words too, for lexical and hybrid search.")
    impacts: Literal["auto", "plain", "packed"] = option(
        "auto",
        "How words are stored: plain, or packed in a third of the bytes and 8 bits an impact; auto packs from 4,000,000 documents on.",
    )
    analyzer: AnalyzerName = option(
        DEFAULT_ANALYZER, "Words are indexed as they are (plain), or by English stems."
    )
    store: str | None = option(
        None,
        "Keep the vectors in Milvus: milvus://HOST:PORT[/DATABASE], or milvus:///PATH.db without a server.",
        metavar="ADDRESS",
    )
    rerank: Path | None = option(
        None,
        "Re-ranker folder: read every document by it beforehand, for searches with `rerank`.",
        metavar="DIR",
    )
    rerank_bits: Literal[16, 8, 4] = option(4, "Bits of each number that is stored for the re-ranker.")
    learned: bool = option(
        False,
        "Make learned impacts: documents also count for words that they do not hold. Needs a model with a head.",
    )
    learned_budget: int = option(100, "Most words of a document in them.", ge=1, le=10_000)
    learned_words: int = option(10_000, "Words that they are made for, the likeliest in queries.", ge=1)
    explain: bool = option(True, "Copy what explanations of hits need from the model.")
    shard_documents: int = option(256, "Documents that are encoded, and kept, as one piece.", ge=1)
    workers: int = option(1, "Processes that encode; 1: this one.", ge=1)
    runner: Literal["local", "ray"] = option("local", "Where they run.")
    ray_address: str | None = option(None, "Ray cluster; default: Ray is started here.")
    resume: bool = option(True, "Resume the same build where it ended before.")
    gate: str | None = option(
        None, "Publish only what is good enough: judged queries (a folder), or live.", metavar="DIR|live"
    )

    _read_rename = field_validator("rename", mode="before")(rename_of)

    @property
    def model_folder(self) -> Path:
        """The model.

        Raises:
            ArtifactNotFoundError: if none was given and there is no default one.
        """
        return self.model or default_model()

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()

    def gate_options(self) -> GateOptions | None:
        """By what the version is judged before it is published; None: it is not.

        Raises:
            ConfigError: if `live` comes without a query log, or a query log or `force` without a gate.
        """
        return parse_gate(self.gate, self, self.thread_count)

    def check_rename(self, field_names: Sequence[str]) -> None:
        """Refuses renames that cannot be meant.

        Raises:
            ConfigError: if a wanted key is no field of the model, which every document would then lack.
        """
        known = ("_id", *field_names)
        for source_key, wanted in self.rename.items():
            if wanted not in known:
                raise ConfigError(
                    f"--map {source_key}={wanted}: the model reads {', '.join(known)}, not {wanted!r}"
                )

    def parameters(self) -> dict[str, Any]:
        """The options that decide what comes out, as JSON values for manifest and report."""
        values = self.model_dump(exclude=_MAKES_NO_DIFFERENCE)
        return {**values, "threads": self.thread_count, "rename": dict(self.rename)}


def parse_rename(pairs: Sequence[str]) -> dict[str, str]:
    """Reads `found=wanted` pairs.

    Raises:
        ConfigError: if a pair has another form, or two name one key.
    """
    rename: dict[str, str] = {}
    for pair in pairs:
        source_key, sign, wanted = pair.partition("=")
        if not (source_key and sign and wanted):
            raise ConfigError(f"--map takes FOUND=WANTED, for example headline=title; found {pair!r}")
        if source_key in rename or wanted in rename.values():
            raise ConfigError(f"--map {pair}: {source_key!r} or {wanted!r} is mapped twice")
        rename[source_key] = wanted
    return rename
