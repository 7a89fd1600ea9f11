"""Passages of long documents: maps rows of the dense index to documents, and hits of passages to hits of documents.

An index version with passages has one vector for each, in the order of the documents; everything else is per
document. `passages/` holds `passages.json` and memory-mapped arrays:

    documents.npy        uint32 [p]      the document's row
    starts.npy, ends.npy uint32 [p]      characters of its body (`glow.text.passages.body_text`)
    first.npy            uint32 [n + 1]  the first passage of each document, and p

    p   passages        n   documents       q   queries
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import BuildError, ConfigError, FormatError, MismatchError
from glow.index.columns import COLUMNS
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Rules
from glow.index.ranking import RowMask
from glow.index.segment import Key, MergeSource, Segment, Segments
from glow.options import StrictModel, option
from glow.records import Document
from glow.storage import map_array, read_header
from glow.text import LongDocuments, PassageCutter, PassageOptions, Preprocessor, body_text, passage_document

PASSAGES_FOLDER = "passages"
PASSAGES_HEADER = "passages.json"
ARRAYS = ("documents", "starts", "ends", "first")
PASSAGES_FILES = tuple(
    f"{PASSAGES_FOLDER}/{name}" for name in (PASSAGES_HEADER, *(f"{a}.npy" for a in ARRAYS))
)
"""Every file of the folder, relative to the version."""
FORMAT_VERSION: Literal[1] = 1
Count = Annotated[int, Field(ge=0, lt=2**32)]
Folded = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Scores float32 [k] descending, rows of documents int64 [k], rows of the best passage of each int64 [k]."""


class PassagesHeader(StrictModel):
    """`passages.json`."""

    format: Literal[1] = FORMAT_VERSION  # format version
    field: str  # the field that was split
    limit: Annotated[int, Field(ge=1)]  # most passages per document
    documents: Count  # n
    passages: Count  # p
    left_out: Count  # number of documents with text beyond the limit, which was left out


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A part of a document's body."""

    field: str  # the field that was split
    start: int  # start, end: in characters of its value; list values are joined by line feeds
    end: int
    text: str  # the text between them


def read_passages_header(folder: Path) -> PassagesHeader:
    """Reads `passages.json` from the directory `passages`."""
    return read_header(folder / PASSAGES_HEADER, PassagesHeader)


class PassageMap:
    """Maps rows of passages to documents and positions in them; safe to use from many threads."""

    def __init__(
        self,
        header: PassagesHeader,  # of the directory
        # documents, starts, ends: uint32 [p], see the module's docstring; documents ascend
        documents: NDArray[np.uint32],
        starts: NDArray[np.uint32],
        ends: NDArray[np.uint32],
        first: NDArray[np.uint32],  # uint32 [n + 1]
        # uint32 [n], each document's rank among ties, each once; None: its row
        order: NDArray[np.uint32] | None = None,
    ) -> None:
        self.header = header
        self.count = len(documents)  # number of live passages; rows exceed it if some are deleted
        self.documents = documents
        self.starts = starts
        self.ends = ends
        self.first = first
        self.order = None if order is None else _passage_order(order, first)

    def __len__(self) -> int:
        return len(self.documents)

    @classmethod
    def open(cls, folder: Path, order: NDArray[np.uint32] | None = None) -> "PassageMap":
        """Opens the directory `passages` of a version; `order` as for the class."""
        header = read_passages_header(folder)
        lengths = {name: header.passages for name in ARRAYS} | {"first": header.documents + 1}
        arrays = {name: map_array(folder / f"{name}.npy", np.uint32, lengths[name]) for name in ARRAYS}
        if fault := _fault(**arrays):
            raise FormatError(f"{folder.name}/{fault}; rebuild the index")
        return cls(header, **arrays, order=order)

    @classmethod
    def joined(cls, maps: "Sequence[PassageMap]", order: NDArray[np.uint32], gone: int) -> "PassageMap":
        """The maps of several segments as one, in memory; `gone` passages of them are deleted."""
        headers = [each.header for each in maps]
        documents = np.cumsum([0, *(header.documents for header in headers)], dtype=np.uint32)
        passages = np.cumsum([0, *(header.passages for header in headers)], dtype=np.uint32)
        counts = {
            "documents": int(documents[-1]),
            "passages": int(passages[-1]),
            "left_out": sum(header.left_out for header in headers),
        }
        firsts = [each.first[:-1] + before for each, before in zip(maps, passages, strict=False)]
        joined = cls(
            headers[0].model_copy(update=counts),
            np.concatenate([each.documents + before for each, before in zip(maps, documents, strict=False)]),
            np.concatenate([each.starts for each in maps]),
            np.concatenate([each.ends for each in maps]),
            np.concatenate([*firsts, passages[-1:]]),
            order,
        )
        joined.count -= gone
        return joined

    def passage_of(self, document: Document, row: int) -> FoundPassage:
        """The passage of a row."""
        start, end = int(self.starts[row]), int(self.ends[row])
        return FoundPassage(self.header.field, start, end, body_text(document, self.header.field)[start:end])

    def mask(self, allowed: RowMask) -> RowMask:
        """The passages of allowed documents."""
        mask = RowMask(np.repeat(allowed.mask, np.diff(self.first)))
        mask.tell(allowed.expression)
        return mask

    def fold(
        self,
        scores: NDArray[np.float32],  # float32 [m], descending
        rows: NDArray[np.int64],  # int64 [m], of passages, best first and each once; -1 is not a hit
    ) -> Folded:
        """Hits of passages as hits of documents: each document has the place of its best passage.

        Returns scores, documents and best passages, as `Folded`.
        """
        met = self.documents[rows[rows >= 0]]
        places = np.sort(np.unique(met, return_index=True)[1])
        return scores[places], met[places].astype(np.int64), rows[places]


def _fault(
    documents: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    ends: NDArray[np.uint32],
    first: NDArray[np.uint32],
) -> str | None:
    """Which file is inconsistent, and why; a valid map leads to no row out of range."""
    if int(first[0]) != 0 or int(first[-1]) != len(documents):
        return f"first.npy runs from {first[0]} to {first[-1]}, expected 0 to {len(documents)}"
    if not (first[:-1] < first[1:]).all():
        return "first.npy does not ascend: every document has a passage"
    if not np.array_equal(documents, np.repeat(np.arange(len(first) - 1), np.diff(first))):
        return "documents.npy and first.npy do not fit together"
    if not (starts <= ends).all():
        return "starts.npy and ends.npy do not fit together: a passage ends before it starts"
    return None


def _passage_order(order: NDArray[np.uint32], first: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Ranks of documents among ties as ranks of their passages, which follow one another as in the body."""
    counts = np.diff(first)
    by_place = np.argsort(order)
    begins = np.empty(len(counts), np.int64)
    begins[by_place] = np.cumsum(counts[by_place], dtype=np.int64) - counts[by_place]
    within = np.arange(first[-1], dtype=np.int64) - np.repeat(first[:-1], counts)
    places: NDArray[np.uint32] = (np.repeat(begins, counts) + within).astype(np.uint32)
    return places


RAW_SUFFIX = ".u32"
MAX_ROWS = 2**32 - 1


def build_passages(
    documents: Iterable[Document],
    cutter: PassageCutter,
    folder: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> PassageMap:
    """Splits documents and writes the positions. Returns the map, opened from its files."""
    target = folder / PASSAGES_FOLDER
    target.mkdir()
    count = rows = left_out = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((target / (name + RAW_SUFFIX)).open("wb")) for name in ARRAYS}
        for document in documents:
            cut = cutter.cut(document)
            spans = np.array(cut.spans, np.int64)
            if rows + len(spans) > MAX_ROWS or spans[-1, 1] > MAX_ROWS:
                raise BuildError(
                    f"document row {count}: passages exceed what 32 bits count; split the corpus"
                )
            values = (np.full(len(spans), count), spans[:, 0], spans[:, 1], np.array([rows]))
            for name, value in zip(ARRAYS, values, strict=True):
                files[name].write(value.astype(np.uint32).tobytes())
            rows += len(spans)
            count += 1
            left_out += cut.left_out
            advance(1)
        files["first"].write(np.array([rows], np.uint32).tobytes())
    for name in ARRAYS:
        _to_npy(target / (name + RAW_SUFFIX), target / f"{name}.npy")
    header = PassagesHeader(
        field=cutter.field, limit=cutter.options.limit, documents=count, passages=rows, left_out=left_out
    )
    header.save(target / PASSAGES_HEADER)
    return PassageMap.open(target)


def _to_npy(raw: Path, path: Path) -> None:
    """Adds NumPy's header to a file of plain numbers."""
    size = raw.stat().st_size
    np.save(path, np.memmap(raw, np.uint32, "r") if size else np.empty(0, np.uint32), allow_pickle=False)
    raw.unlink()


def merge_passages(key: Key[PassageMap, PassageMap], sources: Sequence[MergeSource], folder: Path) -> None:
    """Writes `passages/` from segments that were split by the same rules.

    It is unknown which documents lost text to the limit, so the new header's number is an upper bound.
    """
    maps = [each.segment[key] for each in sources]
    sizes = [np.diff(passages.first)[each.live] for passages, each in zip(maps, sources, strict=True)]
    rows = [each.rows("vector") for each in sources]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes), dtype=np.int64)])
    documents = len(first) - 1
    arrays = {
        "documents": np.repeat(np.arange(documents), np.diff(first)),
        "starts": np.concatenate([passages.starts[row] for passages, row in zip(maps, rows, strict=True)]),
        "ends": np.concatenate([passages.ends[row] for passages, row in zip(maps, rows, strict=True)]),
        "first": first,
    }
    target = folder / PASSAGES_FOLDER
    target.mkdir()
    for name in ARRAYS:
        np.save(target / f"{name}.npy", arrays[name].astype(np.uint32), allow_pickle=False)
    header = maps[0].header.model_copy(
        update={
            "documents": documents,
            "passages": int(first[-1]),
            "left_out": min(documents, sum(passages.header.left_out for passages in maps)),
        }
    )
    header.save(target / PASSAGES_HEADER)


LEAST_SHARE = 0.7
"""Passages pay if so much of the text lies beyond what the encoder reads (docs/results/quality.md)."""


COST_STAGES = ("passages", "encode", "index")
"""The stages that take longer with passages."""


class PassagesOptions(ComponentOptions):
    """Whether and how documents are split."""

    passages: bool | None = option(
        None,
        "Split long documents into passages, each with a vector; default: if 70 % of all text is not read otherwise.",
    )
    passage_field: str | None = option(None, "Field to split; default: the model's body.")
    max_passages: int = option(128, "Most passages per document.", ge=1)

    def cutter(self, preprocessor: Preprocessor) -> PassageCutter | None:
        """What splits the documents; None if that is not requested and the schema has no field to split."""
        try:
            return PassageCutter(preprocessor, PassageOptions(self.passage_field, self.max_passages))
        except ConfigError:
            if self.passages or self.passage_field:
                raise
            return None

    def is_cut(self, documents: LongDocuments) -> bool:
        """Whether documents are split: as requested, otherwise by the rule."""
        return documents.share >= LEAST_SHARE if self.passages is None else self.passages


@dataclass(frozen=True, slots=True, kw_only=True)
class PassagesRules(Rules):
    """How documents are split."""

    cut: PassageOptions  # field and limit


class Passages(Component[PassageMap, PassageMap]):
    """Passages of long documents; each vector then belongs to a passage."""

    name = "passages"
    part = "passages"
    label = "passages"
    stage = "passages"
    prepares = "passages"
    paths = (f"{PASSAGES_FOLDER}/",)
    needs = (COLUMNS.name,)
    options = PassagesOptions

    def rules(self, options: PassagesOptions, inputs: BuildInputs) -> PassagesRules | None:
        """As requested; a field that the model lacks is refused."""
        cutter = options.cutter(inputs.model.preprocessor)
        return PassagesRules(cut=cutter.options) if options.passages and cutter else None

    def rules_of(self, segment: Segment, *, delta: bool) -> PassagesRules | None:
        """As the header says."""
        passages = segment.get(self)
        if passages is None:
            return None
        header = passages.header
        return PassagesRules(cut=PassageOptions(header.field, header.limit))

    def prepare(self, corpus: Corpus, rules: PassagesRules) -> None:
        """Splits every document, which does not depend on term statistics."""
        cutter = PassageCutter(corpus.model.preprocessor, rules.cut)
        build_passages(corpus.documents(), cutter, corpus.made.folder, corpus.advance)

    def build(self, corpus: Corpus, rules: PassagesRules) -> None:
        """Does nothing: documents were split before they were encoded."""

    def merge(self, sources: Sequence[MergeSource], rules: PassagesRules, target: Segment) -> None:
        """Copies the positions of live documents."""
        merge_passages(self, sources, target.folder)

    def report(self, segment: Segment, rules: PassagesRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Number of passages, and encoding time per passage."""
        return {"passages": _describe(segment[self], seconds)}

    def counts(self, reader: PassageMap) -> dict[str, int]:
        """Number of passages."""
        return {"passages": reader.count}

    def open(self, segment: Segment) -> PassageMap | None:
        """Opens the directory; an unfinished segment has no columns yet, so no order of ties."""
        if not segment.has_any(self.paths):
            return None
        segment.require(*PASSAGES_FILES)
        folder, columns = segment.path(PASSAGES_FOLDER), segment.get(COLUMNS)
        count, expected = read_passages_header(folder).documents, segment.rows.documents
        if count != expected:
            content = f"{PASSAGES_FOLDER}/ holds {count} documents,"
            raise MismatchError(
                f"{segment.below}{content} {segment.below}delta.json says {expected} documents; {segment.remedy}"
                if segment.below
                else f"index {segment.name}: {content} its manifest {expected}; {segment.remedy}"
            )
        return PassageMap.open(folder, columns.order if columns else None)

    def first(self, reader: PassageMap) -> NDArray[np.uint32]:
        """Vectors belong to passages."""
        return reader.first

    def reader(self, segments: Segments[PassageMap]) -> PassageMap:
        """One map of all segments."""
        if segments.only is not None:
            return segments.only
        maps, gone = segments.readers, segments.documents.gone
        lost = sum(int(np.diff(each.first)[rows].sum()) for each, rows in zip(maps, gone, strict=True))
        return PassageMap.joined(maps, segments.order, lost)

    def info(self, reader: PassageMap | None) -> dict[str, Any]:
        """Number of live passages."""
        return {"passages": None if reader is None else reader.count}


PASSAGES = Passages()


def _describe(passages: PassageMap, seconds: Mapping[str, float]) -> dict[str, Any]:
    header = passages.header
    sizes = passages.first[1:] - passages.first[:-1]
    took = sum(seconds.get(name, 0.0) for name in COST_STAGES)
    return {
        "field": header.field,
        "limit": header.limit,
        "count": header.passages,
        "per_document": round(header.passages / header.documents, 3),
        "most": int(sizes.max()),
        "whole_documents": int((sizes == 1).sum()),
        "cut_off_documents": header.left_out,
        "milliseconds_each": round(1_000 * took / header.passages, 3),
    }


class TextsOfDocuments:
    """The texts of one document at a time; safe to use from many threads."""

    def __init__(self, passages: PassageMap | None = None) -> None:
        self._passages = passages  # None: documents are not split

    @classmethod
    def open(cls, cuts: Path | None) -> "TextsOfDocuments":
        """Opens it with a directory of passages; None: documents are not split."""
        return cls(None if cuts is None else PassageMap.open(cuts))

    def of(self, document: Document, row: int) -> Iterator[Document]:
        """Yields the texts of a document, given its row, as documents."""
        passages = self._passages
        if passages is None:
            yield document
            return
        for place in range(int(passages.first[row]), int(passages.first[row + 1])):
            start, end = int(passages.starts[place]), int(passages.ends[place])
            yield passage_document(document, passages.header.field, start, end)


def cuts_of(segment: Segment) -> Path | None:
    """The passages directory of an unfinished segment; None: documents are not split."""
    return None if segment.get(PASSAGES) is None else segment.path(PASSAGES_FOLDER)
