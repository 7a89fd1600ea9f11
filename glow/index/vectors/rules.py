"""Rules for the kind and place of a segment's vectors."""

from dataclasses import dataclass
from typing import Any, Literal

from glow.errors import ConfigError
from glow.index.component import ComponentOptions, Rules
from glow.index.vector_search import IndexKind
from glow.index.vectors.kinds import choose_kind, index_bytes, require_buildable
from glow.options import option

__all__ = ["VectorOptions", "VectorRules"]

DEFAULT_MEMORY_MB = 4096


class VectorOptions(ComponentOptions):
    """The kind of dense index, and its place."""

    index: IndexKind | Literal["auto"] = option(
        "auto", "Kind of dense index; auto chooses by number of vectors and --memory-mb."
    )
    memory_mb: int = option(
        DEFAULT_MEMORY_MB, "Memory limit of the served dense index in MiB, for auto.", ge=1
    )
    store: str | None = option(
        None,
        "Store documents, postings, vectors and token vectors in Milvus: milvus://HOST:PORT[/DATABASE], or milvus:///PATH.db "
        "without a server.",
        metavar="ADDRESS",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRules(Rules):
    """How vectors are indexed.

    Attributes:
        index: the kind; `auto` chooses by number of vectors.
        dimensions: D.
        memory_mb: memory limit of the served index in MiB, for `auto`.
        store: address of a Milvus server for all that grows with documents; None: it is in files.
        falls_back: whether the kind is `flat` if there are too few vectors, instead of an error.
    """

    index: IndexKind | Literal["auto"]
    dimensions: int
    memory_mb: int = DEFAULT_MEMORY_MB
    store: str | None = None
    falls_back: bool = False

    def kind(self, count: int) -> IndexKind:
        """The kind for a number of vectors.

        Raises:
            ConfigError: if there are too few vectors, or the kind is unknown; the message has both numbers.
        """
        if self.index == "auto":
            return choose_kind(count, self.dimensions, self.memory_mb << 20)
        try:
            require_buildable(self.index, count)
        except ConfigError:
            if not self.falls_back:
                raise
            return "flat"
        return self.index

    def describe(self, kind: IndexKind, count: int, unit: str, size_bytes: int) -> dict[str, Any]:
        """A report's description of the index: kind, reason and size, JSON values.

        Args:
            kind: the chosen kind.
            count: number of vectors.
            unit: of each vector: `documents` or `passages`.
            size_bytes: of the file; 0 if a server has the vectors.
        """
        return {
            "kind": kind,
            "why": self._why(kind, count, unit),
            "dimensions": self.dimensions,
            "size_bytes": size_bytes,
            **({"store": self.store} if self.store else {}),
        }

    def _why(self, kind: IndexKind, count: int, unit: str) -> str:
        if self.index == kind:
            return "asked for by --index"
        if self.index != "auto":
            return f"{count} {unit} are too few for {self.index}, which was asked for by --index"
        if kind == "flat":
            return f"{count} {unit} are few enough to compare with every one"
        graph_mb = index_bytes("hnsw", count, self.dimensions) / 2**20
        fits = "fits" if graph_mb <= self.memory_mb else "does not fit"
        return (
            f"{count} {unit} are too many to compare with every one, and with its vectors whole the index of "
            f"about {graph_mb:.0f} MiB {fits} into --memory-mb {self.memory_mb}"
        )
