"""The stage that cuts long documents into passages, and what the report says of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from glow.index.passages import PassageMap, build_passages
from glow.index.stored_fields import DocumentStore
from glow.records import Document
from glow.text import PassageCutter, PassageOptions, Preprocessor, passage_document
from glow_index_builder.options import BuildOptions

__all__ = ["cut_documents", "describe_passages", "open_cutter", "passages_of_document"]

COST_STAGES = ("passages", "encode", "index")
"""What passages make longer."""


def open_cutter(options: BuildOptions, preprocessor: Preprocessor) -> PassageCutter | None:
    """What cuts the documents of a build; None where they stay whole.

    Raises:
        ConfigError: if the model has no such field to cut, or an option is out of range.
    """
    if not options.passages:
        return None
    wanted = PassageOptions(options.passage_field, options.passage_overlap, options.max_passages)
    return PassageCutter(preprocessor, wanted)


def cut_documents(
    store: DocumentStore, cutter: PassageCutter, folder: Path, advance: Callable[[int], None]
) -> PassageMap:
    """Cuts every stored document; as `build_passages`."""
    return build_passages(store.scan(), cutter, folder, advance)


def passages_of_document(document: Document, row: int, passages: PassageMap) -> Iterator[Document]:
    """Yields the passages of one document, as documents.

    Args:
        document: the document.
        row: its row in the store.
        passages: where all are cut.
    """
    for place in range(int(passages.first[row]), int(passages.first[row + 1])):
        start, end = int(passages.starts[place]), int(passages.ends[place])
        yield passage_document(document, passages.header.field, start, end)


def describe_passages(passages: PassageMap, seconds: dict[str, float]) -> dict[str, Any]:
    """What was cut, and what a passage took to build."""
    header = passages.header
    sizes = passages.first[1:] - passages.first[:-1]
    took = sum(seconds[name] for name in COST_STAGES)
    return {
        "field": header.field,
        "overlap": header.overlap,
        "limit": header.limit,
        "count": header.passages,
        "per_document": round(header.passages / header.documents, 3),
        "most": int(sizes.max()),
        "whole_documents": int((sizes == 1).sum()),
        "cut_off_documents": header.left_out,
        "milliseconds_each": round(1_000 * took / header.passages, 3),
    }
