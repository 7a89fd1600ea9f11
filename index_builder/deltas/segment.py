"""Builds a segment from new documents; every component follows the rules that the index was built with."""

from collections.abc import Callable, Iterable
from pathlib import Path

from glow.index import (
    COMPONENTS,
    Encoded,
    Segment,
)
from glow.index.passages import texts_of
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS, DocumentWriter
from glow.records import Document
from glow.runtime import Model
from glow.text import TermCounter, field_words
from glow_index_builder.building import MadeCorpus
from glow_index_builder.deltas.open_version import OpenVersion
from glow_index_builder.encoding import TextEncoder, encode_jobs, encode_texts, no_texts

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
        live: the version that they are added to.
        model: the version's model; None if nothing is added.
        folder: directory to create; working files are stored beside it.
        advance: called with the documents or passages encoded.
        threads: encoding threads, >= 1.

    Raises:
        MismatchError: if the model is not the version's.
        BuildError: if the model or the disk fails.
    """
    folder.mkdir()
    with DocumentWriter(folder / DOCUMENTS_FILE) as writer:
        for document in documents:
            writer.add(document)
    corpus, rules = _corpus(live, model, folder, writer.count, threads), live.rules
    for component in COMPONENTS:
        if component.name in rules:
            component.prepare(corpus, rules[component.name])
            if component.prepares and corpus.made.has_any(component.paths):
                corpus.open(component, (folder,))
    corpus.encoded = _encoded(corpus, live, model, advance)
    for component in COMPONENTS:
        if component.name in rules:
            component.build(corpus, rules[component.name])
            corpus.open(component, (folder,))
    return corpus.made


def _corpus(live: OpenVersion, model: Model | None, folder: Path, documents: int, threads: int) -> MadeCorpus:
    """Stores the new documents in the directory. They take the idf of their terms from the base's statistics."""
    made, own, counter = live.new_segment(folder, documents), live.preprocessor, TermCounter()
    for document in STORED_FIELDS.open(made).scan():
        counter.add(field_words(document, own.schema, own.pieces))
    counted = counter.table()
    notes = folder.with_name(f"{folder.name}-work")
    notes.mkdir()
    corpus = MadeCorpus(model or live.query_side, live.terms, counted, counted, made, notes, threads)
    corpus.open(STORED_FIELDS, (folder,))
    return corpus


def _encoded(corpus: MadeCorpus, live: OpenVersion, model: Model | None, advance: Advance) -> Encoded:
    """The vectors and records of the texts; without a model there are no texts."""
    made = corpus.made
    if model is None:
        return no_texts(corpus.notes, live.manifest.counts["dimensions"])
    jobs = encode_jobs(made, live.rules)
    encoder = TextEncoder.open(model, live.terms, "cpu", jobs)
    return encode_texts(texts_of(made), encoder, corpus.threads, corpus.notes, advance, jobs)
