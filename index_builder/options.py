"""The options of one build, checked together before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from glow.errors import ConfigError
from glow.runtime import Device
from glow.search import IndexKind
from glow.text import TermStats
from glow_index_builder.versions import GateOptions

__all__ = ["STDIN", "BuildOptions", "parse_rename"]

STDIN = "-"


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build and how.

    Attributes:
        model: folder of the model.
        source: a file of JSON lines, a folder of them, or `-` for standard input.
        output: the index root, which need not exist.
        publish: whether the new version becomes the live one.
        index: kind of dense index, or `auto` for the one that suits the size.
        device: where towers run and the dense index is built.
        threads: threads that encode and that FAISS uses, >= 1.
        rename: found key -> wanted key of a line; a wanted key is a field of the model or `_id`.
        term_stats: which documents the idf comes from (`glow.text.select_terms`).
        max_words: most different words of the corpus in the term table.
        max_line_bytes: longest line, without its end, that is read.
        max_reject_share: share of lines, in [0, 1], that may be rejected.
        lexical: whether the version gets a lexical index as well.
        memory_mb: memory in MiB that the served index may take, where `auto` chooses.
        passages: whether long documents are cut into passages, each with a vector of its own.
        passage_field: the field that is cut; None: the model's body.
        passage_overlap: sentences that neighbouring passages share, >= 0.
        max_passages: the most passages of a document, >= 1.
        explain: whether the version gets what it takes to say why a hit was found.
        shard_documents: documents of a shard, the unit that is encoded and kept, >= 1.
        workers: processes that encode, >= 1; 1: this one.
        runner: where they run: `local` or `ray`.
        ray_address: of a Ray cluster; None: one is started here.
        resume: whether to go on where an earlier run of the same build ended.
        gate: by what the version is judged before it is published; None: it is not.
    """

    model: Path
    source: str
    output: Path
    publish: bool = True
    index: IndexKind | Literal["auto"] = "auto"
    device: Device = "cpu"
    threads: int = 1
    rename: Mapping[str, str] = field(default_factory=dict)
    term_stats: TermStats = "corpus"
    max_words: int = 2_000_000
    max_line_bytes: int = 1_000_000
    max_reject_share: float = 0.2
    memory_mb: int = 4096
    passages: bool = False
    passage_field: str | None = None
    passage_overlap: int = 0
    max_passages: int = 128
    lexical: bool = True
    explain: bool = True
    shard_documents: int = 256
    workers: int = 1
    runner: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    resume: bool = True
    gate: GateOptions | None = None

    def check_rename(self, field_names: Sequence[str]) -> None:
        """Refuses renames that cannot be meant.

        Raises:
            ConfigError: a wanted key is no field of the model, which every document would then lack.
        """
        known = ("_id", *field_names)
        for found, wanted in self.rename.items():
            if wanted not in known:
                raise ConfigError(
                    f"--map {found}={wanted}: the model reads {', '.join(known)}, not {wanted!r}"
                )

    def parameters(self) -> dict[str, Any]:
        """The options that decide what comes out, as JSON values for manifest and report."""
        values = asdict(self)
        for name in ("model", "output", "publish", "workers", "runner", "ray_address", "resume", "gate"):
            del values[name]
        return {**values, "rename": dict(self.rename)}


def parse_rename(pairs: Sequence[str]) -> dict[str, str]:
    """Reads `found=wanted` pairs.

    Raises:
        ConfigError: a pair has another form, or two name one key.
    """
    rename: dict[str, str] = {}
    for pair in pairs:
        found, sign, wanted = pair.partition("=")
        if not (found and sign and wanted):
            raise ConfigError(f"--map takes FOUND=WANTED, for example headline=title; found {pair!r}")
        if found in rename or wanted in rename.values():
            raise ConfigError(f"--map {pair}: {found!r} or {wanted!r} is mapped twice")
        rename[found] = wanted
    return rename
