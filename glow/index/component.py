"""What is asked of every component of an index; `glow.index.components` lists them in the order in which they are made and opened.

A component is all that is known of one kind of files of an index: what builds, opens, joins, merges, checks and describes them.
Anchors: Lucene's `Codec` and its base test classes. docs/decisions/0032 says why it is so.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index.corpus import Corpus
from glow.index.encoding import EncodeJob
from glow.index.segment import Key, MergeSource, Per, R, Rows, S, Segment
from glow.index.segments import BaseAndDelta
from glow.options import StrictModel
from glow.runtime import Device, Model
from glow.text import TermStats

__all__ = [
    "Asked", "Component", "ComponentOptions", "Explained", "RowComponent", "Rules",
]  # fmt: skip

AT_ONCE = 1024


class ComponentOptions(StrictModel):
    """Options of `glow build` that are one component's own."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a component is made: from a command's options, or as an older version has it, for what is added to that.

    Attributes:
        hashes: name -> hash of what makes it, for the manifest and a build's key.
        parents: name -> what made it, for the manifest.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


C = TypeVar("C", bound=Rules)
O = TypeVar("O", bound=ComponentOptions)
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a build is asked for beside a component's own options.

    Attributes:
        model: that encodes.
        dimensions: D of its document tower.
        device: where to encode and build.
        threads: of encoding, >= 1.
        term_stats: which documents idf comes from.
        rules: of the components before it that are made, by name.
    """

    model: Model
    dimensions: int
    device: Device
    threads: int
    term_stats: TermStats
    rules: Mapping[str, Rules]


class Explained(NamedTuple):
    """A hit that is explained.

    Attributes:
        row: of the document.
        because: word of the query -> the document's word that makes it count, as `Component.causes` found it.
    """

    row: int
    because: Mapping[str, str]


class Component(ABC, Key[S, R], Generic[S, R, C, O]):
    """One component of an index. Nobody else knows its files, options or words; methods with a body are optional.

    Attributes:
        name: by which it is found.
        label: it in messages: "impacts in its delta alone".
        stage: of a build and of `compact`, in reports and progress.
        paths: its files below a segment, which building and merging write; what ends in a slash is a folder.
        stays: its files below a version that a compaction takes as they are.
        per: what its rows are of; one of the whole index has none.
        needs: components before it whose readers it asks for: if their files changed, it is opened anew as well.
        options: options of `glow build` that are its own; flags and their documentation are made of them.
        prepares: stage of `prepare`; empty: there is nothing to prepare.
        part: the component in `/info`'s list of parts; empty: it is not in there.
    """

    stage: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    stays: ClassVar[tuple[str, ...]] = ()
    per: ClassVar[Per] = "document"
    needs: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[type[ComponentOptions]] = ComponentOptions
    prepares: ClassVar[str] = ""
    part: ClassVar[str] = ""

    # How it is made.

    @abstractmethod
    def rules(self, options: O, asked: Asked) -> C | None:
        """What a build is to make; None: it was not asked for.

        Raises:
            ConfigError: if the options do not go together, or the model cannot make it.
            DeviceError, DependencyError, StoreError: if what it needs is not there.
        """

    @abstractmethod
    def rules_of(self, segment: Segment, *, delta: bool) -> C | None:
        """How a segment's was made, for what is added to it (`delta`) or for one that replaces it; None: it has none."""

    def check_model(self, rules: C, model: Model) -> None:
        """Refuses a model that cannot make what a segment has, before anything is read.

        Raises:
            MismatchError: with both hashes.
        """
        return None

    def check_rows(self, rows: Rows, rules: C) -> None:
        """Refuses a number of rows, as soon as it is known.

        Raises:
            ConfigError: if it cannot be made of so few or so many.
        """
        return None

    def prepare(self, corpus: Corpus, rules: C) -> None:
        """Writes into `corpus.made.folder` what encoding needs; called anew if documents were left out."""
        return None

    def encoding(self, made: Segment, rules: C) -> EncodeJob | None:
        """What makes its records, in the one pass over the texts; None: it needs none."""
        return None

    @abstractmethod
    def build(self, corpus: Corpus, rules: C) -> None:
        """Writes its files into `corpus.made.folder`.

        Raises:
            OSError: if the disk is full or cannot be written.
        """

    @abstractmethod
    def merge(self, kept: Sequence[MergeSource], rules: C, made: Segment) -> None:
        """Writes one segment of what stays of several, in their order; nothing is encoded or tokenised again.

        Args:
            kept: one or more that all have the component.
            rules: of the new one.
            made: gets the files; the components before this one are merged, and open in it.
        """

    def report(self, made: Segment, rules: C, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Its members of `report.json`, JSON values.

        Args:
            made: in which it is open, its files written.
            rules: how it was made.
            seconds: stage -> what it took so far.
        """
        return {}

    def counts(self, reader: R) -> dict[str, int]:
        """Its counts in the manifest."""
        return {}

    def parameters(self, reader: S) -> dict[str, Any]:
        """What the manifest says of it beside a build's options."""
        return {}

    # How it is read.

    @abstractmethod
    def open(self, segment: Segment) -> S | None:
        """Opens it: verified files alone, mapped if they are large; None: the segment has none.

        Raises:
            FormatError: if a file is damaged or of another format; it is named.
            MismatchError: if the manifest lacks a file, or it is of other rows or another artifact than the segment's.
        """

    def first(self, reader: S) -> NDArray[np.uint32] | None:
        """The first vector of each document, and v, uint32 [n + 1], of the component that cuts documents; None: it does not."""
        return None

    @abstractmethod
    def alone(self, reader: S, segment: Segment) -> R:
        """One reader of a segment that has no delta."""

    @abstractmethod
    def join(self, both: BaseAndDelta[S]) -> R:
        """One reader of a base and its delta, to the bit what a rebuild of both would answer.

        Raises:
            MismatchError: if they were made by different rules.
            DeviceError: if the base lies where what is gone cannot be left out.
        """

    def serves(self, reader: R | None) -> Mapping[str, str]:
        """Request -> "", or why this index cannot serve it and how to build one that can."""
        return {}

    def info(self, reader: R | None) -> dict[str, Any]:
        """Its members of `/info`, also if the index has none."""
        return {}

    def explain(self, reader: R, retriever: str, words: Sequence[str], hit: Explained) -> dict[str, Any]:
        """Its members of the explanation of a hit, JSON values; none if it has no share in what the retriever found."""
        return {}


class RowComponent(Component[S, R, C, O], Generic[S, R, C, O, B]):
    """A component that is written row after row: building and merging are one `write` over blocks from two places."""

    @abstractmethod
    def blocks(self, corpus: Corpus, rules: C) -> Iterator[B]:
        """What is stored of new rows, some at a time, in their order."""

    @abstractmethod
    def stored(self, reader: S, rows: NDArray[np.int64]) -> B:
        """What is stored of given rows, int64 [m], as it is."""

    @abstractmethod
    def write(self, folder: Path, rules: C, blocks: Iterator[B]) -> None:
        """Writes the files into a segment's folder."""

    def build(self, corpus: Corpus, rules: C) -> None:
        """As `Component`."""
        self.write(corpus.made.folder, rules, self.blocks(corpus, rules))

    def merge(self, kept: Sequence[MergeSource], rules: C, made: Segment) -> None:
        """As `Component`."""
        self.write(made.folder, rules, self._stored(kept))

    def _stored(self, kept: Sequence[MergeSource]) -> Iterator[B]:
        for each in kept:
            reader, rows = each.segment[self], each.rows(self.per)
            for start in range(0, len(rows), AT_ONCE):
                yield self.stored(reader, rows[start : start + AT_ONCE])
