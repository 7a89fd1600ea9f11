"""Encodes a shard: stored documents or their passages become vectors and records, in bounded memory.

A shard's files depend only on its documents, not on threads, processes or earlier attempts. So chunks are cut
within the shard, and the tower runs on one thread.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from glow.index import EncodeJob
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentStore
from glow.records import Document
from glow.runtime import Device, Model
from glow.text import TermTable
from glow_index_builder.encoding.record_files import EncodedTexts
from glow_index_builder.encoding.shards import Shard, ShardReport, write_shard
from glow_index_builder.encoding.text_encoder import TextEncoder

__all__ = ["ShardEncoder", "ShardJob"]

CHUNK_DOCUMENTS = 256
CHUNK_CHARACTERS = 4 << 20


@dataclass(frozen=True, slots=True)
class ShardJob:
    """The paths and options of an encoding job, which a process or machine gets before its shards.

    Attributes:
        model: directory of the model.
        store: the document store.
        terms: directory of the index's term statistics.
        cuts: directory of the passage boundaries; None: documents are not cut.
        shards: directory that shards are written to.
        device: device of the tower.
        threads: shards that one process encodes at the same time, >= 1.
        jobs: name of a component -> its encoding job.
    """

    model: Path
    store: Path
    terms: Path
    cuts: Path | None
    shards: Path
    device: Device
    threads: int
    jobs: Mapping[str, EncodeJob] = field(default_factory=dict, hash=False)


class ShardEncoder:
    """Encodes shards; thread-safe.

    Args:
        encoder: encodes texts.
        store: the documents.
        texts: the texts of each document.
        folder: directory that shards are written to.
    """

    def __init__(
        self, encoder: TextEncoder, store: DocumentStore, texts: TextsOfDocuments, folder: Path
    ) -> None:
        self._encoder = encoder
        self._store = store
        self._of_documents = texts
        self._folder = folder

    @classmethod
    def open(cls, job: ShardJob) -> Self:
        """Opens the model, documents and term statistics of a job.

        Raises:
            ArtifactError: if the model is missing or damaged.
            DeviceError: if the device is missing.
        """
        model, terms = Model.open(job.model), TermTable.load(job.terms)
        return cls(
            TextEncoder.open(model, terms, job.device, job.jobs),
            DocumentStore(job.store),
            TextsOfDocuments.open(job.cuts),
            job.shards,
        )

    def encode(self, shard: Shard) -> ShardReport | None:
        """Encodes a shard and writes it; a probe is only encoded, not written.

        Raises:
            EncodeError: if a vector is not finite, or records cannot be made.
            OSError: if the disk is full or cannot be written.
        """
        ids: list[str] = []
        parts = self._parts(shard, ids)
        if not shard.is_probe:
            return write_shard(self._folder, shard, ids, parts)
        for _ in parts:
            pass
        return None

    def _parts(self, shard: Shard, ids: list[str]) -> Iterator[EncodedTexts]:
        for chunk in _chunks(self._texts(shard, ids)):
            yield self._encoder.encode(chunk)

    def _texts(self, shard: Shard, ids: list[str]) -> Iterator[Document]:
        """The documents or passages of a shard; appends the documents' ids to `ids`."""
        skip = {row for row, _ in shard.skip}
        for row, document in enumerate(self._store.scan(shard.start, shard.stop), shard.start):
            if row not in skip:
                ids.append(document.id)
                yield from self._of_documents.of(document, row)


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Cuts a stream by number and by size, so that memory does not grow with long documents."""
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += sum(len(value) for values in document.fields.values() for value in values)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
