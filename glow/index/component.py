"""The interface of index components; `glow.index.version` lists them in the order of building and opening.

A component contains everything about one kind of index files: it builds, opens, merges, checks and describes them.
Prior art: Lucene's `Codec` and its base test classes. docs/decisions/0032 gives the reasons.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.segment import Key, MergeSource, Per, R, Rows, S, Segment, Segments
from glow.options import StrictModel
from glow.records import Document
from glow.runtime import Device, Model
from glow.text import TermStats, TermTable, WeightedTokens


class VectorRows(Protocol):
    """Vectors that can be read in blocks: an array, or a reader of files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(count, D)."""
        ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        ...


class Texts(NamedTuple):
    """Documents or passages with the document tower's outputs."""

    texts: Sequence[Document]  # texts, sequences: b texts, and their tokens
    sequences: Sequence[WeightedTokens]
    vectors: NDArray[np.float32]  # float32 [b, D], L2-normalized
    # Name of an output of the tower -> float32 [b, L, K]; at least each output that an encoder of the build
    # reads
    outputs: Mapping[str, NDArray[np.float32]]


class Records(NamedTuple):
    """Stored records of a component for some texts."""

    records: NDArray[Any]  # of the component's dtype, of one text after another, [sum of counts]
    counts: NDArray[np.int64]  # int64 [b], number of records of each text


class RowEncoder(Protocol):
    """Makes records; opened where texts are encoded (thread, process, Ray), used by many threads."""

    # Outputs of the document tower besides the vector; the encoder then gets one batch at a time. If empty,
    # it gets some hundred texts at a time, without outputs
    reads: tuple[str, ...]

    def encode(self, batch: Texts) -> Records:
        """Makes the records of texts, in their order."""
        ...


class EncodeJob(Protocol):
    """Opens an encoder; small, can be pickled, names files by absolute path."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a record."""
        ...

    def open(self, model: Model, terms: TermTable, device: Device) -> RowEncoder:
        """Opens the encoder."""
        ...


class Encoded(Protocol):
    """Results of encoding all texts, read from files."""

    def records(self, component: str) -> Iterator[Records]:
        """A component's records in blocks, in the order of rows."""
        ...

    def vectors(self) -> VectorRows:
        """All vectors, float32 [v, D]; read in blocks, not kept in memory."""
        ...


RangeTask = Callable[[str, int, int], None]
"""Imports rows `start` to `stop` into a collection; can be pickled."""
ImportRows = Callable[[str, int, int], Iterator[int]]
"""Imports rows `start` to `stop` into a collection; yields up to which row all are imported, ascending, finally `stop`."""


class Corpus(Protocol):
    """The documents of a build or an upsert, without those that could not be encoded."""

    @property
    def model(self) -> Model:
        """The model that encodes."""
        ...

    @property
    def terms(self) -> TermTable:
        """The index's own term statistics."""
        ...

    @property
    def counted(self) -> TermTable:
        """Word statistics of these documents, as far as the encoder reads them."""
        ...

    @property
    def vocabulary(self) -> TermTable:
        """Word statistics of all words that a lexical index of these documents may hold."""
        ...

    @property
    def counted_terms(self) -> TermTable:
        """Statistics of the terms of a lexical index; `counted` if these are the words that the encoder reads."""
        ...

    @property
    def encoded(self) -> Encoded:
        """Results of the only pass of the document tower; not available in `prepare`."""
        ...

    @property
    def made(self) -> Segment:
        """The earlier components, open; this component writes into its directory."""
        ...

    @property
    def notes(self) -> Path:
        """A directory that survives a killed build, for a component that resumes by itself."""
        ...

    @property
    def threads(self) -> int:
        """Number of threads to use, >= 1."""
        ...

    @property
    def spread(self) -> Callable[[RangeTask], ImportRows] | None:
        """Runs a task over many rows on other machines; None: this process runs it."""
        ...

    def documents(self) -> Iterator[Document]:
        """All documents, in the order of rows; read from disk each time."""
        ...

    def advance(self, count: int) -> None:
        """Reports the number of finished rows."""
        ...


class ComponentOptions(StrictModel):
    """Options of `glow build` for one component."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How to build a component: from a command's options, or as in an existing version that is extended."""

    # Name -> hash of an input, for the manifest and a build's key
    hashes: Mapping[str, str] = field(default_factory=dict)
    # Name -> input artifact, for the manifest
    parents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """Inputs of a build besides a component's own options."""

    model: Model  # encodes the documents
    dimensions: int  # D of its document tower
    device: Device  # for encoding and building
    threads: int  # number of encoding threads, >= 1
    term_stats: TermStats  # source of idf
    rules: Mapping[str, Rules]  # of the earlier components, by name


class Explained(NamedTuple):
    """A hit to explain."""

    row: int  # of the document
    because: Mapping[str, str]  # word of the query -> the document's word that it matches through
    # Word of the query -> what else counts as it, each of one word or more
    others: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType({})


class Component(ABC, Key[S, R], Generic[S, R]):
    """One component of an index. Only it knows its files, options and rules; methods with a body are optional."""

    stage: ClassVar[str]  # of a build and of `compact`, in reports and progress
    # Its files below a segment, for building and merging; a trailing slash marks a directory
    paths: ClassVar[tuple[str, ...]]
    stays: ClassVar[tuple[str, ...]] = ()  # its files below a version that a compaction keeps unchanged
    per: ClassVar[Per] = "document"  # unit of its rows; empty for a component of the whole index
    # Earlier components whose readers it uses; if their files change, it is reopened too
    needs: ClassVar[tuple[str, ...]] = ()
    # Its own options of `glow build`, from which flags and documentation are generated
    options: ClassVar[type[ComponentOptions]] = ComponentOptions
    prepares: ClassVar[str] = ""  # stage of `prepare`; empty if there is none
    part: ClassVar[str] = ""  # its name in `/info`'s list of components; empty if it is not listed

    # Building.

    @abstractmethod
    def rules(self, options: Any, inputs: BuildInputs) -> Rules | None:
        """How a build makes it; None: it was not requested."""

    @abstractmethod
    def rules_of(self, segment: Segment, *, delta: bool) -> Rules | None:
        """How a segment's was made, to extend it (`delta`) or to replace it; None: the segment lacks it."""

    def check_model(self, rules: Any, model: Model) -> None:
        """Refuses a model that cannot make the segment's kind, before reading anything."""
        return None

    def check_rows(self, rows: Rows, rules: Any) -> None:
        """Refuses a number of rows, as soon as that is known."""
        return None

    def prepare(self, corpus: Corpus, rules: Any) -> None:
        """Writes into `corpus.made.folder` what encoding needs; called again if documents were left out."""
        return None

    def encoding(self, segment: Segment, rules: Any) -> EncodeJob | None:
        """The job that makes its records, in the only pass over the texts; None: it needs none."""
        return None

    @abstractmethod
    def build(self, corpus: Corpus, rules: Any) -> None:
        """Writes its files into `corpus.made.folder`."""

    @abstractmethod
    def merge(
        self,
        sources: Sequence[MergeSource],
        rules: Any,
        target: Segment,  # the new segment; the components before this one are merged, and open in it
    ) -> None:
        """Merges the live rows of several segments into one, in order; nothing is encoded or tokenized again."""

    def report(self, segment: Segment, rules: Any, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Its entries in `report.json`, JSON values."""
        return {}

    def counts(self, reader: R) -> dict[str, int]:
        """Its counts in the manifest."""
        return {}

    def parameters(self, reader: S) -> dict[str, Any]:
        """Its parameters in the manifest besides a build's options."""
        return {}

    # Reading.

    @abstractmethod
    def open(self, segment: Segment) -> S | None:
        """Opens it from verified files, mapped if they are large; None: the segment lacks it."""

    def first(self, reader: S) -> NDArray[np.uint32] | None:
        """The first vector of each document, and v, uint32 [n + 1], for the component that splits documents; otherwise None."""
        return None

    @abstractmethod
    def reader(self, segments: Segments[S]) -> R:
        """One reader of all segments, with exactly the results of a rebuild of what they hold."""

    def serves(self, reader: R | None) -> Mapping[str, str]:
        """Request -> "", or why this index cannot serve it and how to build one that can."""
        return {}

    def info(self, reader: R | None) -> dict[str, Any]:
        """Its entries in `/info`, also if the index lacks it."""
        return {}

    def explain(self, reader: R, retriever: str, words: Sequence[str], hit: Explained) -> dict[str, Any]:
        """Its entries in the explanation of a hit, JSON values; empty if the retriever does not use it."""
        return {}
