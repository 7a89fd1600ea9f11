"""New documents as a segment in the making: every component made by the rules that the index was built with."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index import (
    COMPONENTS,
    AnyComponent,
    Encoded,
    ImportRows,
    RangeTask,
    Records,
    Rules,
    Segment,
    VectorRows,
)
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS, DocumentWriter
from glow.records import Document
from glow.runtime import Model
from glow.text import TermCounter, TermTable, field_words
from glow_index_builder.deltas.open_version import OpenVersion
from glow_index_builder.encoding import TextEncoder, encode_jobs, encode_texts, texts_of

__all__ = ["write_segment"]

Advance = Callable[[int], None]


def write_segment(
    documents: Iterable[Document],
    live: OpenVersion,
    model: Model | None,
    folder: Path,
    advance: Advance,
    threads: int = 1,
) -> Segment:
    """Writes documents as a segment, and opens it.

    Args:
        documents: each id once.
        live: the version whose base they are added to.
        model: that built it; None: there is no document.
        folder: made; working files lie beside it.
        advance: told the documents or passages encoded.
        threads: of encoding, >= 1.

    Raises:
        MismatchError: if the model cannot make what the version has.
        BuildError: if the model is broken, or the disk.
    """
    folder.mkdir()
    with DocumentWriter(folder / DOCUMENTS_FILE) as writer:
        for document in documents:
            writer.add(document)
    corpus = _Corpus(live, model or live.query_side, live.new_segment(folder, writer.count), threads)
    corpus.open(STORED_FIELDS)
    rules = live.rules
    for component in COMPONENTS:
        if component.name in rules:
            component.prepare(corpus, rules[component.name])
            if component.prepares and corpus.made.has_any(component.paths):
                corpus.open(component)
    corpus.encoded = _encoded(corpus, rules, model, advance)
    for component in COMPONENTS:
        if component.name in rules:
            component.build(corpus, rules[component.name])
            corpus.open(component)
    return corpus.made


def _encoded(corpus: "_Corpus", rules: Mapping[str, Rules], model: Model | None, advance: Advance) -> Encoded:
    """What the document tower and the components make of the texts."""
    made, live = corpus.made, corpus.live
    if model is None:
        return _Nothing(live.manifest.counts["dimensions"])
    jobs = encode_jobs(made, rules)
    encoder = TextEncoder.open(model, live.terms, "cpu", jobs)
    return encode_texts(texts_of(made), encoder, corpus.threads, corpus.notes, advance, jobs)


@dataclass(slots=True, eq=False)
class _Nothing:
    """What comes of no text; an `Encoded`."""

    dimensions: int

    def records(self, component: str) -> Iterator[Records]:
        return iter(())

    def vectors(self) -> VectorRows:
        nothing: NDArray[np.float32] = np.empty((0, self.dimensions), np.float32)
        return nothing


@dataclass(eq=False)
class _Corpus:
    """The new documents; a `Corpus`.

    Attributes:
        live: the version whose base they are added to.
        model, made, threads: as in a `Corpus`.
        encoded: likewise, once the texts are.
    """

    live: OpenVersion
    model: Model
    made: Segment
    threads: int
    encoded: Encoded = field(init=False)

    def open(self, component: AnyComponent) -> None:
        """Opens what a component has written."""
        reader = component.open(self.made)
        if reader is not None:
            self.made = self.made.with_reader(component, reader, component.first(reader))

    @property
    def terms(self) -> TermTable:
        return self.live.terms

    @cached_property
    def counted(self) -> TermTable:
        counter, own = TermCounter(), self.live.preprocessor
        for document in self.documents():
            counter.add(field_words(document, own.schema, own.pieces))
        return counter.table()

    @property
    def counted_terms(self) -> TermTable:
        """The words: what is added takes the idf of its terms from the base's tables, so nobody asks for its own."""
        return self.counted

    @property
    def notes(self) -> Path:
        notes = self.made.folder.with_name(f"{self.made.folder.name}-work")
        notes.mkdir(exist_ok=True)
        return notes

    @property
    def spread(self) -> Callable[[RangeTask], ImportRows] | None:
        return None

    def documents(self) -> Iterator[Document]:
        return self.made[STORED_FIELDS].scan()

    def advance(self, count: int) -> None:
        """Documents are counted once, when they are encoded."""
